"""Whether a store keeps its conditions, found out by trying; the same for every driver."""

from __future__ import annotations

import concurrent.futures
import contextlib
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rtj_api.reasons import Reason

from rtj_sidecar.stores.base import Conflict, IfAbsent, IfMatch, Store, StoreProblem, Written

RACERS = 4
_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Seen:
    """`key` holds `data` until the end of the probe."""

    key: str
    data: bytes
    create: bool
    replace: bool


@contextlib.contextmanager
def probed(store: Store, prefix: str) -> Iterator[Seen]:
    """What was seen below `prefix`, where nothing is left. Raises StoreProblem.

    Races, for some servers look before they write and hold conditions only one at a time.
    """
    key = f"{prefix}probe-{uuid.uuid4().hex}"
    with concurrent.futures.ThreadPoolExecutor(RACERS) as pool:

        def race(name: str, condition: IfAbsent | IfMatch) -> bool:
            """Whether exactly one of the racers won, and its bytes are there."""
            bodies = [f"probe {name} {number} {key}".encode() for number in range(RACERS)]
            racing = [pool.submit(store.put, key, body, condition=condition) for body in bodies]
            won = [b for b, f in zip(bodies, racing, strict=True) if _is_written(f.result)]
            seen = store.get(key)
            if seen is None and not won:
                return False  # every one was refused
            if seen is None or seen.data not in bodies:
                raise StoreProblem(
                    Reason.STORE_UNSUPPORTED,
                    f"{store.url} gave back other bytes than were put: do not use this store; "
                    "check for a proxy or gateway that stores checksum trailers inside objects",
                )
            return won == [seen.data]

        try:
            create = _holds(lambda name: store.delete(key) or race(name, IfAbsent()))
            create = create and store.put(key, b"late", condition=IfAbsent()) == Conflict()
            replace = create and _holds(lambda name: race(name, IfMatch(_etag(store, key))))
            last = store.get(key)
            stale = IfMatch("stale" if last is None else last.etag)
            if replace:
                store.put(key, b"newer", condition=stale)
                replace = store.put(key, b"stale", condition=stale) == Conflict()
            if not create:
                store.put(key, b"unconditional")
            last = store.get(key)
            yield Seen(key, last.data if last is not None else b"", create, replace)
        finally:
            store.delete(key)


def _is_written(result: Callable[[], Written | Conflict]) -> bool:
    """False also where the server refuses to hear of a condition."""
    try:
        return isinstance(result(), Written)
    except StoreProblem as problem:
        if problem.transient or problem.reason != Reason.STORE_UNSUPPORTED:
            raise
        return False


def _holds(race: Callable[[str], bool]) -> bool:
    return all(race(f"in round {number}") for number in range(_ROUNDS))


def _etag(store: Store, key: str) -> str:
    seen = store.get(key)
    return "" if seen is None else seen.etag
