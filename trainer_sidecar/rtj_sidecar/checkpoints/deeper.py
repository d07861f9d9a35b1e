"""What is looked at in a save beyond its gates: its numbers and the names in it.

The gates say that these are the bytes that were written; this says whether they are worth resuming
from. A save that is not is shipped all the same, with the fact `unfit`: whoever lifts the rule has
lost nothing. Must never judge a generation twice, nor hold up a save that cannot be read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rtj_sidecar.checkpoints import finite, required
from rtj_sidecar.checkpoints.paths import UnsafePathError
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.roles import Role
from rtj_sidecar.checkpoints.types import FoundSave, Verdict

UNFIT = "unfit"
NOT_FINITE, LOSS_NOT_FINITE = "CheckpointNotFinite", "CheckpointLossNotFinite"
_AT_FIRST = 2  # saves that lie there already: the newest can only be compared with the one before
_SHOWN = 3
_MOST = 10_000
_MOST_KINDS = 1000
_BASIS = "before"  # in `unfit`: the numbers of the fit save that it was compared with, by role

_ODD = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError)

log = logging.getLogger("rtj.sidecar")


@dataclass(frozen=True, slots=True)
class Depth:
    """`checkpoint.validation` without the probe."""

    numbers: bool = False  # level: full
    required: tuple[str, ...] = ()


NOT_DEEPER = Depth()


class Deeper:
    """Remembers what each generation was found to hold, and the numbers of the last fit saves."""

    def __init__(self, reader: Reader, depth: Depth) -> None:
        self._reader = reader
        self._depth = depth
        self._known: dict[tuple[str, str], Mapping[str, object]] = {}
        self._recorded: dict[tuple[str, str], Mapping[str, object]] = {}
        # By (layout, role, names and kinds of the tensors): of the last fit save of that kind.
        self._before: dict[tuple[str, str, object], Mapping[str, object]] = {}

    def recall(self, recorded: Iterable[tuple[str, tuple[str, str], Mapping[str, object]]]) -> None:
        """What an earlier life found: (layout, identity, facts) of each save, oldest first.

        Without it the first save after a restart in the midst of NaN would be the one to compare
        with. What was found meanwhile goes first.
        """
        for layout, identity, facts in reversed(list(recorded)):
            unfit = facts.get(UNFIT)
            if finite.FACT in facts:
                kept = (finite.FACT, UNFIT)
                self._recorded[identity] = {key: facts[key] for key in kept if key in facts}
            basis = unfit.get(_BASIS) if isinstance(unfit, Mapping) else facts.get(finite.FACT)
            for key, found in _by_kind(layout, basis).items():
                self._before.setdefault(key, found)

    def look(
        self, judged: Sequence[tuple[FoundSave, Verdict]]
    ) -> tuple[tuple[FoundSave, Verdict], ...]:
        """The same with more facts. Oldest first, as they come."""
        if not self._depth.numbers and not self._depth.required:
            return tuple(judged)
        late = [save.identity for save, v in judged if v.candidate][-_AT_FIRST:]
        is_first = not self._known
        told: list[tuple[FoundSave, Verdict]] = []
        for save, verdict in judged:
            if is_first and verdict.candidate and save.identity not in late:
                self._known[save.identity] = {}
            if verdict.candidate and save.full_state is not False:
                verdict = replace(verdict, facts={**verdict.facts, **self._of(save)})
            told.append((save, verdict))
        return tuple(told)

    def _of(self, save: FoundSave) -> Mapping[str, object]:
        known = self._known.get(save.identity)
        if known is not None:
            return known
        facts: dict[str, object] = {}
        try:
            if self._depth.required:
                found = required.required_of(save, self._reader, patterns=self._depth.required)
                facts[required.FACT] = found.as_fact()
            if self._depth.numbers:
                self._numbers(save, facts)
        except (OSError, UnsafePathError) as error:
            log.info("%s is not looked into: %s", save.root_key, error)
            return {}  # gone or changing: it is judged again if it stays
        except _ODD:
            # A file that no reader was made for must hold up neither itself nor the others.
            log.exception("%s is not looked into", save.root_key)
        if len(self._known) >= _MOST:
            del self._known[next(iter(self._known))]
        self._known[save.identity] = facts
        return facts

    def _numbers(self, save: FoundSave, facts: dict[str, object]) -> None:
        recorded = self._recorded.get(save.identity)
        if recorded is not None:
            facts |= recorded
            if UNFIT not in recorded:
                self._is_fit(save, recorded[finite.FACT])
            return
        now = finite.numbers_of(save, self._reader)
        facts[finite.FACT] = now
        kinds = _by_kind(save.layout, now)
        before = {key[1]: self._before[key] for key in kinds if key in self._before}
        new = finite.new_nans(now, before)
        if not new:
            self._is_fit(save, now)
            return
        names = ", ".join(new[:_SHOWN]) + (f" and {len(new) - _SHOWN} more" if new[_SHOWN:] else "")
        facts[UNFIT] = {
            "reason": NOT_FINITE,
            "message": f"{save.root_key}: NaN in {names}, finite in the save before",
            _BASIS: before,
        }

    def _is_fit(self, save: FoundSave, numbers: object) -> None:
        for key, found in _by_kind(save.layout, numbers).items():
            self._before.pop(key, None)
            self._before[key] = found
        while len(self._before) > _MOST_KINDS:
            del self._before[next(iter(self._before))]


def _by_kind(layout: str, numbers: object) -> dict[tuple[str, str, object], Mapping[str, object]]:
    if not isinstance(numbers, Mapping):
        return {}
    told = {role.value: numbers.get(role.value) for role in Role}
    return {
        (layout, role, found.get("same")): found
        for role, found in told.items()
        if isinstance(found, Mapping)
    }


def unfit_of(facts: Mapping[str, object]) -> tuple[str, str] | None:
    """(reason, message) of a save that must not be resumed from, by what is in it."""
    told = facts.get(UNFIT)
    if not isinstance(told, Mapping):
        return None
    return str(told.get("reason")), str(told.get("message"))
