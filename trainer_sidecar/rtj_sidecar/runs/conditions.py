"""A run in a store that does not honour conditional writes: what takes their place.

Whether it is one stands in `run.json`, so that every rank and tool does alike. Then a record is
looked for, written and looked at again, and the numbers of fences no longer rest on a race that
the store decides: the attempt, which the operator counts in status and names in the directive,
says which is whose. So attempts of one job never meet in one number, and one that another job took
the run from does not meet its successor. Two jobs that are let into a run in the same seconds may:
the record is looked at again after `SETTLE_SECONDS`, and before whatever is published.
Must never be used where the store honours conditions, which need no such assumption.
"""

from __future__ import annotations

from rtj_sidecar.runs.records import FenceRecord
from rtj_sidecar.stores.base import Condition, Conflict, IfAbsent, IfMatch, Store, Written

SETTLE_SECONDS = 3.0
"""What was sent before the look that came before a write is there by then."""

APART = 1000
"""So far above another job's newest fence is the first of whoever takes its run over: more than
the attempts that the other may count on without knowing."""


class Conditions:
    """Whether the run's store honours conditions; unknown until `run.json` was read."""

    def __init__(self) -> None:
        self._honoured: bool | None = None

    @property
    def honoured(self) -> bool | None:
        return self._honoured

    def know(self, honoured: bool) -> None:
        self._honoured = honoured


def put_after_look(
    store: Store, key: str, data: bytes, *, condition: Condition
) -> Written | Conflict:
    """`Store.put` by a look before and after. The looks see what the store shows: another's write
    between them may win, or be lost."""
    there = store.get(key)
    if there is not None and there.data == data:
        return Written(there.etag)
    match condition:
        case IfAbsent() if there is not None:
            return Conflict()
        case IfMatch(etag) if there is None or there.etag != etag:
            return Conflict()
    store.put(key, data)
    seen = store.get(key)
    return Written(seen.etag) if seen is not None and seen.data == data else Conflict()


def number_of_attempt(newest: FenceRecord | None, *, owner: str, attempt: int) -> int:
    """The fence of this job's attempt: the run's newest one plus the attempts between them."""
    if newest is None:
        return attempt
    if newest.owner == owner:
        return newest.fence + attempt - newest.attempt
    return newest.fence + APART + attempt
