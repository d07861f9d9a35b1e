"""Which save an attempt starts from: one rule for the operator and for `rtj run`.

Never a wrong, torn or foreign save, and never step 0 by accident: a store that did not answer is
unknown, not empty; saves that exist but cannot be used hold the job unless a person or the spec
allowed a fresh start. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rtj_api.reasons import Reason
from rtj_api.rules import trials
from rtj_api.wire import Candidate, Resume

MAX_PEERS = 64
_SHOWN = 600  # characters of the list of refused saves
HOW_TO_ALLOW = (
    "allow step 0 with the annotation resumable-training.dev/request: "
    '{"id": "1", "action": "allow-scratch"}'
)
FOR_NOW = frozenset(
    {Reason.WORLD_SIZE_REFUSED, Reason.REQUIRED_KEY_MISSING, Reason.CHECKPOINT_ARCHIVED}
)
"""Why a save is refused as things stand: a replica count, a key or a restore brings it back."""
HOW_TO_RESTORE = (
    "Ask for it with `rtj checkpoints restore JOB SAVE` (or `aws s3api restore-object` for each "
    "of its objects); it can be chosen again when the store has restored it, which may take hours"
)


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A newer save that was not chosen, and why: each becomes an event."""

    name: str
    step: int | None
    why: str


@dataclass(frozen=True, slots=True)
class Chosen:
    resume: Resume
    why: str
    passed_over: tuple[PassedOver, ...] = ()


@dataclass(frozen=True, slots=True)
class NoChoice:
    """Nothing may start. `reason` names the hold."""

    reason: Reason
    message: str
    passed_over: tuple[PassedOver, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that the choice depends on."""

    run: str
    world_size: int
    candidates: Sequence[Candidate]  # rank 0's, newest first
    listed: bool  # the store answered, after the fence was claimed
    pinned: Mapping[int, Collection[str]]  # by live rank: saves whole and pinned there
    shares: Mapping[int, Collection[str]] = field(default_factory=dict)  # and its own files of them
    urls: Mapping[int, str]  # by live rank: http://ip:port of its sidecar
    last_durable_step: int | None = None
    last_durable_name: str | None = None
    ever_durable: bool = False  # some step of this run was durable once
    allow_scratch: bool = False  # by the spec or a person's request
    scratch_asked: bool = False  # by a person's request, once: that also leaves good saves behind
    how_to_allow: str = HOW_TO_ALLOW
    probe_remedy: str = trials.REMEDY
    suspects: Mapping[str, str] = field(default_factory=dict)  # by name: why it is not tried now
    bad: Mapping[str, str] = field(default_factory=dict)  # by name: why never, not yet marked so


def holders(candidate: Candidate, *by_rank: Mapping[int, Collection[str]]) -> tuple[int, ...]:
    """Ranks that have it in one of these."""
    found = {r for held in by_rank for r, names in held.items() if candidate.name in names}
    return tuple(sorted(found))


def why_unusable(candidate: Candidate, *, facts: Facts) -> str | None:
    """None when the save can be loaded by the whole gang; else why not."""
    if candidate.invalid == Reason.CHECKPOINT_ARCHIVED:
        return f"it lies in an archive of the store. {HOW_TO_RESTORE}"
    if candidate.invalid is not None:
        told = f": {candidate.invalid_message}" if candidate.invalid_message else ""
        return f"found invalid: {candidate.invalid}{told}"
    if candidate.failed_probe is not None:
        return f"its probe failed ({candidate.failed_probe.how}), so an older one is tried first"
    if candidate.name in facts.bad:
        return facts.bad[candidate.name]
    if candidate.name in facts.suspects:
        return facts.suspects[candidate.name]
    if candidate.full_state is False:
        return "it holds weights only, not the optimizer's state"
    if candidate.durable:
        return None
    have = set(holders(candidate, facts.pinned, facts.shares))
    missing = [r for r in candidate.needs if r not in have]
    if missing:
        ranks = ", ".join(map(str, missing[:8]))
        return f"it never became durable and the files of rank {ranks} are gone"
    if not have or not candidate.needs:
        return "it never became durable and no living pod is known to hold all of it"
    return None


def is_pinned_everywhere(
    candidate: Candidate, *, pinned: Mapping[int, Collection[str]], world_size: int
) -> bool:
    """Every rank has it at hand: nobody has a byte to move."""
    return len(holders(candidate, pinned)) == world_size


def _is_behind_durable(candidate: Candidate, *, index: int, facts: Facts) -> bool:
    """Whether it lies before the last step known to be durable; unknown counts as behind."""
    if facts.last_durable_step is None and facts.last_durable_name is None:
        return facts.ever_durable
    if candidate.name == facts.last_durable_name:
        return False
    if candidate.step is not None and facts.last_durable_step is not None:
        return candidate.step < facts.last_durable_step
    names = [c.name for c in facts.candidates]
    return facts.last_durable_name not in names[index:]


def _resume(candidate: Candidate, facts: Facts) -> Resume:
    held = holders(candidate, facts.pinned, facts.shares)
    # Only all of those who wrote it, together, know which files a save has without a manifest.
    first = [] if candidate.durable else [r for r in candidate.needs if r in held]
    ranks = [*first, *(r for r in held if r not in first)][: max(MAX_PEERS, len(first))]
    return Resume(
        run=facts.run,
        name=candidate.name,
        step=candidate.step,
        durable=candidate.durable,
        peers=[facts.urls[r] for r in ranks if r in facts.urls],
    )


def _label(candidate: Candidate) -> str:
    step = "unknown step" if candidate.step is None else f"step {candidate.step}"
    return f"{candidate.name} ({step})"


def choose(facts: Facts) -> Chosen | NoChoice:
    """The newest save that all ranks can load; else scratch by right; else why to hold.

    A suspicion only changes the order: where nothing but suspect saves is left, they serve.
    """
    found = _choose(facts)
    is_served = isinstance(found, Chosen) and not found.resume.scratch
    if is_served or not facts.suspects:
        return found
    return _choose(replace(facts, suspects={}))


def _choose(facts: Facts) -> Chosen | NoChoice:
    passed: list[PassedOver] = []
    stuck = trials.why_hold(facts.candidates, remedy=facts.probe_remedy)
    if stuck is not None:
        return NoChoice(Reason.PROBE_FAILED, stuck)
    for index, candidate in enumerate(facts.candidates):
        why = why_unusable(candidate, facts=facts)
        if why is None and not facts.listed:
            if not is_pinned_everywhere(
                candidate, pinned=facts.pinned, world_size=facts.world_size
            ):
                why = "the store does not answer and not every rank has it locally"
            elif _is_behind_durable(candidate, index=index, facts=facts):
                why = "the store does not answer and a newer step is durable in it"
        if why is None:
            where = "durable" if candidate.durable else "not yet durable, held by living pods"
            skipped = f", after passing over {len(passed)} newer" if passed else ""
            return Chosen(
                _resume(candidate, facts),
                f"newest save that all ranks can load: {_label(candidate)}, {where}{skipped}",
                tuple(passed),
            )
        passed.append(PassedOver(candidate.name, candidate.step, why))

    skipped_all = tuple(passed)
    if not facts.listed:
        return NoChoice(
            Reason.STORE_UNREACHABLE,
            "the store does not answer, so it is unknown which saves exist; starting from nothing "
            "could lose work. Check checkpoint.store and its credentials; it is tried again",
            skipped_all,
        )
    stuck = trials.why_hold(facts.candidates, is_last=True, remedy=facts.probe_remedy)
    if stuck is not None:
        # A probe that fails is no proof that nothing is worth keeping: never step 0 for it.
        return NoChoice(Reason.PROBE_FAILED, stuck, skipped_all)
    good = _refused_for_now(facts, skipped_all)
    if good is not None and facts.allow_scratch and not facts.scratch_asked:
        return NoChoice(Reason.NO_VALID_CHECKPOINT, good, skipped_all)
    if facts.allow_scratch or facts.scratch_asked:
        why = "no usable save, and a start from nothing was allowed"
        return Chosen(Resume(scratch=True), why, skipped_all)
    condemned = any(c.durable or c.invalid is not None for c in facts.candidates)
    weights = any(c.full_state is False for c in facts.candidates)
    if not condemned and not weights and not facts.ever_durable:
        why = "the store was listed and no step of this run was ever durable"
        return Chosen(Resume(scratch=True), why, skipped_all)
    listing = "; ".join(f"{_name(p)}: {p.why}" for p in skipped_all[:3]) or "the store holds none"
    return NoChoice(
        Reason.NO_VALID_CHECKPOINT,
        f"no save of run {facts.run} can be used ({listing}). Put a valid one back, or "
        f"{facts.how_to_allow}",
        skipped_all,
    )


def _refused_for_now(facts: Facts, passed: Sequence[PassedOver]) -> str | None:
    """Why to hold where saves are only refused as things stand; None where none is."""
    good = {c.name for c in facts.candidates if c.durable and c.invalid in FOR_NOW}
    if not good:
        return None
    listing = "; ".join(f"{_name(p)}: {p.why}" for p in passed if p.name in good)
    return (
        f"no save of run {facts.run} can be used as things stand, and {len(good)} would count "
        f"again ({_shortened(listing)}). onNoValid: StartFromScratch does not apply to them. "
        f"Correct what is said there, or {facts.how_to_allow}"
    )


def _shortened(listing: str) -> str:
    return listing if len(listing) <= _SHOWN else f"{listing[: _SHOWN - 1]}…"


def _name(passed: PassedOver) -> str:
    return passed.name if passed.step is None else f"{passed.name} (step {passed.step})"
