"""`rtj import` and `rtj checkpoints push`: another's checkpoints become saves of a run.

Both hold the run while they copy, as a job would, and say at the end that it is free. Must never
take a run that a living job holds, and never add a save that did not pass its gates.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rtj_api.stores import SCHEMES
from rtj_sidecar.checkpoints.types import FoundSave
from rtj_sidecar.runs.fence import Claimed
from rtj_sidecar.runs.imports.choosing import Passed
from rtj_sidecar.runs.imports.finding import place_at
from rtj_sidecar.runs.imports.importing import Proved, first_proved, prove
from rtj_sidecar.runs.imports.surveying import How, Survey, Unusable, survey
from rtj_sidecar.runs.records import FenceRecord, ManifestRecord, Outcome, Parent
from rtj_sidecar.runs.run import Run
from rtj_sidecar.stores.base import Store
from rtj_sidecar.stores.open import open_store

from rtj_cli.saves import Refused
from rtj_cli.targets import run_in
from rtj_cli.telling import Code

_PUSH = "push"  # begins the UID of whoever adds a save to a run


@dataclass
class Imported:
    """What came of it. `refused`: name and why, newest first."""

    saves: list[ManifestRecord] = field(default_factory=list)
    refused: list[Passed] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return {
            "imported": [
                {
                    "name": save.name,
                    "step": save.step,
                    "epoch": save.epoch,
                    "loss": save.loss,
                    "bytes": save.bytes,
                    "rootKey": save.root_key,
                    "layout": save.layout,
                    "status": save.status,
                }
                for save in self.saves
            ],
            "refused": [{"name": each.name, "why": each.why} for each in self.refused],
        }


def looked_at(source: str, *, how: How, endpoint: str | None, region: str | None) -> Survey:
    """What a source holds. Raises Refused, StoreProblem, SourceChanged, OSError."""
    url = source if "://" in source else Path(source).expanduser().resolve().as_uri()
    known = [scheme.name for scheme in SCHEMES]
    if urlsplit(url).scheme not in known:
        forms = ", ".join(f"{name}://" for name in known)
        raise Refused(f"{source}: name a directory, or a URL: {forms}", Code.USAGE)

    def opened(place: str) -> Store:
        return open_store(place, endpoint=endpoint, region=region)

    try:
        return survey(place_at(url, open_place=opened), how=how)
    except Unusable as error:
        raise Refused(str(error), Code.NOT_FOUND) from None


def chosen_of(found: Survey, many: int | None) -> Sequence[FoundSave]:
    """The newest `many` (None: all), newest first. Raises Refused."""
    if found.order.problem is not None:
        raise Refused(found.order.problem, Code.INVALID)
    return found.order.saves[:many]


def make_run(
    store: Store,
    run_id: str,
    found: Survey,
    *,
    many: int | None,
    how: How,
    told: Callable[[ManifestRecord], None],
) -> Imported:
    """A run that holds the newest `many` whole saves as its line, oldest first."""
    job_uid = _uid("import", found, run_id)
    run = run_in(store, run_id, job_uid=job_uid)
    fence = _claimed_new(run, run_id, job_uid=job_uid)
    done = Imported(refused=list(found.order.passed))
    oldest_first = list(reversed(chosen_of(found, many)))
    known = _known(run)
    last_known = max((n for n, s in enumerate(oldest_first) if s.root_key in known), default=-1)
    for at, save in enumerate(oldest_first):
        if at < last_known and save.root_key not in known:
            # Its number would make it newer than those that are there.
            late = Passed(save.root_key, "newer ones were imported before it: it has no place now")
            done.refused.insert(0, late)
            continue
        outcome = prove(found, save, how=how)
        if isinstance(outcome, Passed):
            how.say(f"refused {outcome}")
            done.refused.insert(0, outcome)
            continue
        done.saves.append(_taken(run, outcome, found, fence=fence, how=how, in_line=True))
        told(done.saves[-1])
    if not done.saves and many is not None:
        # Nothing of what was asked for is whole: the newest that is.
        older = found.order.saves[many:]
        try:
            proved = first_proved(_only(found, older), how=how)
        except Unusable as error:
            raise Refused(_none_whole(found, done), Code.INVALID) from error
        done.saves.append(_taken(run, proved, found, fence=fence, how=how, in_line=True))
        told(done.saves[-1])
    if not done.saves:
        raise Refused(_none_whole(found, done), Code.INVALID)
    asked = f"rtj import of {found.place.url}"
    run.set_parent(fence=fence, parent=Parent(scratch=True, asked=asked))
    run.set_outcome(fence=fence, outcome=Outcome.RELEASED)
    return done


def _known(run: Run) -> set[str]:
    """Root keys of what an import that was interrupted has brought already."""
    told = (manifest.facts.get("origin") for manifest in run.history().manifests.values())
    return {str(origin["name"]) for origin in told if isinstance(origin, dict)}


def add_to_run(
    run: Run, store: Store, run_id: str, found: Survey, *, take_over: bool, how: How
) -> Imported:
    """The newest whole save of a source, beside the line of a run that nobody holds: it is reached
    by its name."""
    _free_for_push(run, run_id, take_over=take_over)
    try:
        proved = first_proved(found, how=how)
    except Unusable as error:
        raise Refused(str(error), Code.INVALID) from None
    # Proving may have taken long: who holds it now?
    newest, last = _free_for_push(run, run_id, take_over=take_over)
    # The state of the run goes with the claim: a push that is killed leaves it as it was.
    outcome = (last.outcome if last is not None else None) or Outcome.RELEASED
    mine = run_in(store, run_id, job_uid=_uid(_PUSH, found, run_id))
    answer = mine.claim(attempt=1, world_size=1, may_claim=True, over=newest.owner, outcome=outcome)
    if not isinstance(answer, Claimed):
        raise _held(newest, run_id)
    if answer.record.outcome is None:
        mine.set_outcome(fence=answer.fence, outcome=outcome)
    manifest = _taken(mine, proved, found, fence=answer.fence, how=how, in_line=False)
    return Imported([manifest], list(proved.passed))


def _free_for_push(
    run: Run, run_id: str, *, take_over: bool
) -> tuple[FenceRecord, FenceRecord | None]:
    """The newest fence, and the newest that is no push's own: its outcome is the run's. Raises
    Refused where a job holds the run."""
    fences = run.history().fences
    if not fences:
        raise Refused(f"run {run_id} has no attempt yet: use `rtj import`", Code.NOT_FOUND)
    newest = fences[-1]
    last = next((each for each in reversed(fences) if not _is_push(each)), None)
    holder = newest if newest.outcome is None and not _is_push(newest) else None
    if last is not None and last.outcome is None and _is_push(newest) and newest.outcome is None:
        holder = last  # a push that was killed after it had taken the run over says nothing of it
    if holder is not None and not take_over:
        raise _held(holder, run_id)
    return newest, last


def _is_push(fence: FenceRecord) -> bool:
    return fence.job_uid.startswith(f"{_PUSH}-")


def _held(by: FenceRecord, run_id: str) -> Refused:
    name = f"{by.namespace}/{by.job}" if by.job else by.owner
    return Refused(
        f"run {run_id} is held by {name} (attempt {by.attempt}), which would be stopped: "
        "import it into a run of its own and name that in resumeFrom, or, if that job has "
        "certainly ended, --take-over"
    )


def _taken(
    run: Run, proved: Proved, found: Survey, *, fence: int, how: How, in_line: bool
) -> ManifestRecord:
    manifest = run.take_up(proved, found.place, fence=fence, how=how, in_line=in_line)
    if proved.root == how.incoming:
        shutil.rmtree(how.incoming, ignore_errors=True)
    return manifest


def _claimed_new(run: Run, run_id: str, *, job_uid: str) -> int:
    """The fence of a run that is new, or that this very import began before."""
    there = run.newest_fence()
    if there is None or there.job_uid == job_uid:
        answer = run.claim(attempt=1, world_size=1)
        if isinstance(answer, Claimed):
            return answer.fence
        there = run.newest_fence()
    whose = f", last held by {there.namespace}/{there.job}" if there and there.job else ""
    raise Refused(
        f"run {run_id} exists already{whose}: choose another --run-id, or add a save to it with "
        "`rtj checkpoints push`"
    )


def _none_whole(found: Survey, done: Imported) -> str:
    words = "; ".join(str(each) for each in done.refused[:5])
    return f"{found.place.url} holds no checkpoint that is whole: {words}"


def _only(found: Survey, saves: Sequence[FoundSave]) -> Survey:
    return replace(found, order=replace(found.order, saves=tuple(saves)))


def _uid(word: str, found: Survey, run_id: str) -> str:
    """The same when it is done again after it was interrupted."""
    text = f"{found.place.url}\0{run_id}".encode()
    return f"{word}-{hashlib.sha256(text).hexdigest()[:16]}"
