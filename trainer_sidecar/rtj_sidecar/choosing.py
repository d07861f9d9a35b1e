"""Which save an attempt resumes from, chosen by rank 0 where the operator cannot hear of it.

By the operator's own rule, from what the ranks' records tell. Must never choose another beginning
than the one that was asked for, and writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rtj_api.reasons import Reason
from rtj_api.rules import resume as rules
from rtj_api.wire import Candidate, Directive, Found, Resume, Wanted

from rtj_sidecar.runs.records import ReadyRecord
from rtj_sidecar.station import Station


def choose(
    at: Station, directive: Directive, said: Mapping[int, ReadyRecord], *, wanted: Wanted | None
) -> rules.Chosen | rules.NoChoice:
    """`said`: each rank's record; `wanted`: a beginning that is still being looked up."""
    told = directive.through_store
    entry, report = at.journal.entry, at.reporter.current
    asked, found = directive.wanted, report.found
    if asked is not None and found is not None and found.asked == asked.asked:
        return _asked_for(asked, found, run=at.site.config.run_id)
    if wanted is not None:
        # Never another beginning in its place.
        asked_for = wanted.value or "a start from nothing"
        return rules.NoChoice(
            Reason.STORE_UNREACHABLE,
            f"{asked_for} was asked for, and could not be looked up in the store yet",
        )
    if report.run_complete:
        return rules.NoChoice(
            Reason.RUN_ALREADY_COMPLETE, f"run {at.site.config.run_id} has finished already"
        )
    had_a_life = report.holder is not None or any(
        c.durable and c.invalid is None for c in at.candidates
    )
    if told is not None and told.hold_existing and had_a_life:
        return rules.NoChoice(
            Reason.RUN_EXISTS,
            f"run {at.site.config.run_id} exists and checkpoint.onExistingRun is Hold: set it "
            "to Resume or Fresh",
        )
    return rules.choose(
        rules.Facts(
            run=at.site.config.run_id,
            world_size=directive.world_size,
            candidates=at.tried(at.candidates),
            listed=True,
            pinned={rank: record.pinned for rank, record in said.items()},
            shares={rank: record.shares for rank, record in said.items()},
            urls={rank: record.url for rank, record in said.items() if record.url},
            last_durable_step=entry.last_durable_step,
            last_durable_name=entry.last_durable_name,
            ever_durable=told is not None and told.ever_durable,
            allow_scratch=told is not None and told.allow_scratch,
            scratch_asked=told is not None and told.scratch_asked,
        )
    )


def _asked_for(wanted: Wanted, found: Found, *, run: str) -> rules.Chosen | rules.NoChoice:
    """What a person asked to begin from, as this sidecar found and proved it."""
    if wanted.value is None:
        fresh = Resume(scratch=True, asked=wanted.asked)
        return rules.Chosen(fresh, f"a new line of run {run} begins at step 0, as was asked for")
    save, why = found.save, found.problem
    if save is not None and save.full_state is False:
        why = "it holds weights only, not the optimizer's state"
    if save is None or why is not None:
        return rules.NoChoice(
            Reason.RESUME_FROM_UNUSABLE,
            f"{wanted.value} cannot be resumed from: {why}. Correct or remove "
            "checkpoint.resumeFrom, or name another by a request",
        )
    resume = Resume(run=run, name=save.name, step=save.step, asked=wanted.asked)
    return rules.Chosen(resume, f"asked for: {save.name}")


def may_yet_be_pinned(
    chosen: rules.Chosen | rules.NoChoice, candidates: Sequence[Candidate]
) -> bool:
    """Whether a newer save was passed over that the others may be about to tell of."""
    names = {p.name for p in chosen.passed_over}
    return any(not c.durable and c.name in names for c in candidates)
