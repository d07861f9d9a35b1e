"""What the facts of a save say against resuming from it: new NaN, a required key that is not there.

Unlike a mark it is no record of its own: when the rule is lifted (`checkpoint.validation`), the
save counts again. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rtj_api.reasons import Reason

from rtj_sidecar.checkpoints import required as names
from rtj_sidecar.checkpoints.deeper import UNFIT, unfit_of
from rtj_sidecar.checkpoints.resume_state import HAS, has_of, merged
from rtj_sidecar.runs.records import SaveFacts


def against(facts: Mapping[str, object], *, required: Sequence[str] = ()) -> tuple[str, str] | None:
    """(reason, message that names the tensor or the key and the file), or None."""
    found = unfit_of(facts)
    if found is not None:
        return found
    told = facts.get(names.FACT)
    lost = names.lacking(told if isinstance(told, Mapping) else None, patterns=required)
    if lost is None:
        return None
    key, where = lost
    return (
        str(Reason.REQUIRED_KEY_MISSING),
        f"{where} has no {key!r}, which checkpoint.validation.requiredKeys asks for",
    )


def said_against(facts: Mapping[str, object], *, required: Sequence[str]) -> dict[str, str]:
    """The same as fields of a Candidate."""
    found = against(facts, required=required)
    return {} if found is None else {"invalid": found[0], "invalid_message": found[1]}


def facts_of_parts(told: Sequence[SaveFacts]) -> dict[str, object]:
    """The facts of all ranks together, lowest rank first: the lowest that knows a thing says it,
    and what one rank holds the save holds."""
    facts: dict[str, object] = {}
    for each in reversed(told):
        facts |= each.facts
    if any(HAS in each.facts for each in told):
        facts[HAS] = merged(has_of(each.facts) for each in told)
    asked = [fact for each in told if isinstance(fact := each.facts.get(names.FACT), Mapping)]
    if (all_names := names.merged(asked)) is not None:
        facts[names.FACT] = all_names
    unfit = [each.facts[UNFIT] for each in told if UNFIT in each.facts]
    if unfit:
        facts[UNFIT] = unfit[0]
    return facts
