"""What every part of a run's history needs: the store, who we are, and how records are read.

A record that cannot be read is told by name with its remedy, never taken for an absent one.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from pydantic import ValidationError
from rtj_api.reasons import Reason
from rtj_api.wire import Wire

from rtj_sidecar.runs import keys
from rtj_sidecar.runs.conditions import Conditions, put_after_look
from rtj_sidecar.runs.records import RunRecord
from rtj_sidecar.stores.base import Condition, Conflict, IfAbsent, Store, StoreProblem, Written

OF_ONE_RECORD = frozenset({Reason.RUN_DAMAGED, Reason.CHECKPOINT_ARCHIVED})
"""What a failed read says of the record itself; anything else is said of the store."""

R = TypeVar("R", bound=Wire)
A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a fence tells people of its job."""

    namespace: str | None = None
    job: str | None = None
    image: str | None = None
    command: tuple[str, ...] = ()
    required: tuple[str, ...] = ()  # checkpoint.validation.requiredKeys: no part of a record


class Begin(Protocol):
    """Begins a call, and gives what waits for its result or error."""

    def __call__(self, call: Callable[[], B], /) -> Callable[[], B]: ...


def _at_once(call: Callable[[], B], /) -> Callable[[], B]:
    result = call()
    return lambda: result


@dataclass(frozen=True, slots=True)
class Context:
    """`workers`: store calls at a time; 1 makes every order of calls deterministic."""

    store: Store
    run_id: str
    cluster_uid: str
    job_uid: str
    rank: int
    now: Callable[[], float]
    new_id: Callable[[], str]
    workers: int = 16
    about: About = About()
    session: str = field(default_factory=lambda: uuid.uuid4().hex)  # this process, this run
    conditions: Conditions = field(default_factory=Conditions)
    pause: Callable[[float], None] = time.sleep

    @property
    def owner(self) -> str:
        return f"{self.cluster_uid}/{self.job_uid}"

    def full(self, key: str) -> str:
        return f"{self.run_id}/{key}"

    def keys(self, prefix: str) -> list[str]:
        """Keys below `prefix`, relative to the run."""
        skip = len(self.run_id) + 1
        return [found.key[skip:] for found in self.store.list(self.full(prefix))]

    def read(self, key: str, model: type[R]) -> tuple[R, str] | None:
        """(record, etag), None where there is none. Raises RUN_DAMAGED for one that is broken."""
        found = self.store.get(self.full(key))
        if found is None:
            return None
        try:
            return model.model_validate_json(found.data), found.etag
        except ValidationError as error:
            where = "; ".join(
                f"{'.'.join(str(part) for part in each['loc']) or 'document'}: {each['msg']}"
                for each in error.errors()[:3]
            )
            raise StoreProblem(
                Reason.RUN_DAMAGED,
                f"{self.store.url}/{self.full(key)} is no {model.__name__} ({where}): restore it "
                "from a backup, or start another run with checkpoint.runID",
            ) from None

    def write(self, key: str, record: Wire, *, condition: Condition) -> bool:
        """False where the condition did not hold."""
        return isinstance(self.put(key, record.dump_json().encode(), condition=condition), Written)

    def put(self, key: str, data: bytes, *, condition: Condition) -> Written | Conflict:
        """Write a small object under a condition, which a store may have to be helped to keep."""
        full = self.full(key)
        if condition is None or self.honours_conditions():
            return self.store.put(full, data, condition=condition)
        return put_after_look(self.store, full, data, condition=condition)

    def honours_conditions(self) -> bool:
        """What `run.json` says of the store; True where the run has none yet."""
        known = self.conditions.honoured
        if known is None:
            run = self.read(keys.RUN, RunRecord)
            if run is None:
                return True
            known = run[0].store.honours_conditions
            self.conditions.know(known)
        return known

    def create(self, key: str, record: Wire) -> bool:
        """False where it is there already, with other words. Raises StoreProblem too where the
        store says so of a key that it does not have: what rests on it must not be believed."""
        if self.write(key, record, condition=IfAbsent()):
            return True
        if self.store.head(self.full(key)) is None:
            raise StoreProblem(
                Reason.STORE_UNREACHABLE,
                f"{self.store.url}/{self.full(key)}: the store says that it is there and that it "
                "is not: check for a cache or gateway before the store",
                transient=True,
            )
        return False

    def map(self, call: Callable[[A], B], items: Iterable[A]) -> list[B]:
        """`call` on all items, several at a time; the first error is raised."""
        listed = list(items)
        if self.workers <= 1 or len(listed) <= 1:
            return [call(item) for item in listed]
        with ThreadPoolExecutor(min(self.workers, len(listed)), "rtj-run") as pool:
            return list(pool.map(call, listed))

    @contextlib.contextmanager
    def aside(self) -> Iterator[Begin]:
        """Calls that run beside what follows; at the end of the block all have ended. With one
        worker each is done at once."""
        if self.workers <= 1:
            yield _at_once
            return
        with ThreadPoolExecutor(self.workers, "rtj-aside") as pool:

            def begin(call: Callable[[], B], /) -> Callable[[], B]:
                return pool.submit(call).result

            yield begin

    def highest_fence(self) -> int:
        """0 where there is none."""
        found = (keys.parse_fence(key) for key in self.keys(keys.FENCES))
        return max((fence for fence in found if fence is not None), default=0)
