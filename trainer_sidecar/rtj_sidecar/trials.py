"""The user's probe of a restored save: asked of the supervisor, judged, remembered. Rank 0 only.

One failure only makes older saves be tried first (`rules.trials`); a mark is written when an older
one has passed. What failed is remembered in the journal: a pod that is lost in between begins with
the newest save again, which costs time and never a save. Must never let a trainer start from a
save whose probe did not pass, and never take for a failure what was stopped.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time

from rtj_api import contract
from rtj_api.reasons import Reason
from rtj_api.rules import trials as rules
from rtj_api.wire import (
    Directive,
    FailedProbe,
    Probe,
    Resume,
    Trial,
    TrialReport,
    TrialState,
    TrialView,
    Verdict,
)

from rtj_sidecar.failing import AttemptFailed
from rtj_sidecar.journal import Entry
from rtj_sidecar.runs.records import MarkKind
from rtj_sidecar.station import Station, log
from rtj_sidecar.stores.base import StoreProblem

BEGIN_SECONDS = 60.0  # the supervisor takes it up in a few milliseconds
END_SECONDS = 60.0  # from its time limit to its end: it is killed at once
MARK_SECONDS = 20.0
LOOK_SECONDS = 0.02
TICK_SECONDS = 20.0


def digest_of(probe: Probe, *, image: str | None) -> str:
    """Another command or image is another probe: what this one said counts no more."""
    text = json.dumps([probe.command, probe.timeout_seconds, image])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def begin_attempt(at: Station, directive: Directive) -> None:
    """At prepare. What failed before a person changed something may be tried again."""
    at.reporter.set(trial=None)
    at.journal.note(probe_running=None)
    if directive.forget_probes:
        at.journal.note(probe_failed={})


def ticks_of(trial: TrialReport | None) -> int:
    """Rises while a probe runs, for those who wait for this rank and see only its records. Its own
    time limit ends it."""
    if trial is None or trial.state is not TrialState.RUNNING:
        return 0
    return 1 + int((time.time() - trial.since) / TICK_SECONDS)


def told_before(entry: Entry) -> TrialReport | None:
    """What a sidecar that comes back knows: a probe runs, or the save in use is one that it passed
    on."""
    if entry.probe_running is not None:
        return entry.probe_running
    resume = entry.resume
    if resume is None or resume.name is None or entry.probe_passed != resume.name:
        return None
    return TrialReport(
        name=resume.name, state=TrialState.PASSED, since=time.time(), limit_seconds=0
    )


class Trials:
    """Belongs to the event loop's thread."""

    def __init__(self, station: Station) -> None:
        self._at = station

    async def check(self, directive: Directive, resume: Resume, path: str | None) -> None:
        """After the restore, before the fence says what the attempt starts from.

        Raises AttemptFailed. Run again after a crash of this sidecar it hears the same answer: the
        supervisor runs a trial once.
        """
        at, probe = self._at, directive.probe
        if probe is None or at.site.config.rank != 0 or resume.name is None or path is None:
            return
        digest = digest_of(probe, image=at.site.config.image)
        if at.journal.entry.probe_digest != digest:
            at.journal.note(probe_digest=digest, probe_failed={}, probe_passed=None)
        if at.journal.entry.probe_passed == resume.name:
            self._tell(resume.name, TrialState.PASSED, probe)
            return
        try:
            view = await self._run(directive, probe, resume, path=path, digest=digest)
        finally:
            at.journal.note(probe_running=None)
        if view.not_run is not None:
            raise AttemptFailed(
                Reason.PROBE_NOT_RUN,
                f"`{rules.shown(probe.command)}` could not be run in the trainer's container of "
                f"rank 0: {view.not_run}. Correct checkpoint.validation.probe, or the image",
            )
        if view.stopped:
            raise AttemptFailed(Reason.RESTORE_FAILED, "the probe was stopped before it ended")
        if view.exit_code == 0 and not view.timed_out and not view.lost:
            self._passed(resume.name, probe)
            await self._mark_newer(resume.name, probe)
            return
        raise self._failed(resume.name, probe, view)

    async def _run(
        self, directive: Directive, probe: Probe, resume: Resume, *, path: str, digest: str
    ) -> TrialView:
        at = self._at
        if at.supervisor is not None and not at.supervisor.python:
            raise AttemptFailed(
                Reason.PROBE_NOT_RUN,
                "the trainer's image has no python3, without which the supervisor cannot run "
                "checkpoint.validation.probe: add python3 to the image, or remove the probe",
            )
        trial = Trial(
            id=f"{directive.attempt}/{resume.name}/{digest}",
            attempt=directive.attempt,
            command=probe.command,
            env={
                contract.ENV_ATTEMPT: str(directive.attempt),
                contract.ENV_RESUME_STEP: "" if resume.step is None else str(resume.step),
                contract.ENV_RESUME_CHECKPOINT: path,
                contract.ENV_CHECKPOINT_DIR: at.site.config.path,
            },
            timeout_seconds=probe.timeout_seconds,
        )
        at.link.trial(trial)
        log.info("probe of %s: %s", resume.name, rules.shown(probe.command))
        self._tell(str(resume.name), TrialState.RUNNING, probe)
        at.journal.note(probe_running=at.reporter.current.trial)
        begun = time.monotonic()
        while True:
            view = at.supervisor.trial if at.supervisor is not None else None
            mine = view is not None and view.id == trial.id
            if view is not None and mine and view.ended:
                return view
            limit = probe.timeout_seconds + END_SECONDS if mine else BEGIN_SECONDS
            if time.monotonic() - begun > limit:
                what = "end" if mine else "begin"
                raise AttemptFailed(
                    Reason.RESTORE_FAILED, f"the supervisor did not {what} the probe in time"
                )
            await asyncio.sleep(LOOK_SECONDS)

    def _tell(self, name: str, state: TrialState, probe: Probe) -> None:
        self._at.reporter.set(
            trial=TrialReport(
                name=name, state=state, since=time.time(), limit_seconds=probe.timeout_seconds
            )
        )

    def _passed(self, name: str, probe: Probe) -> None:
        log.info("probe of %s: passed", name)
        self._at.journal.note(probe_passed=name)
        self._tell(name, TrialState.PASSED, probe)

    def _failed(self, name: str, probe: Probe, view: TrialView) -> AttemptFailed:
        at = self._at
        how = rules.how_it_ended(view, timeout_seconds=probe.timeout_seconds)
        text = rules.message(view, command=probe.command, how=how)
        failed = {**at.journal.entry.probe_failed, name: FailedProbe(how=how, message=text)}
        at.journal.note(probe_failed=failed, probe_passed=None)
        self._tell(name, TrialState.FAILED, probe)
        at.tell_candidates()
        return AttemptFailed(Reason.PROBE_FAILED, f"{name}: {text}", retrying=True)

    async def _mark_newer(self, passed: str, probe: Probe) -> None:
        """An older save passed: those that failed are to blame, by evidence.

        A mark that the store does not take in time is tried again at the next pass; until then
        the journal keeps the save from being chosen.
        """
        at = self._at
        for name, failed in list(at.journal.entry.probe_failed.items()):
            if name == passed:
                at.journal.note(probe_failed=_without(at.journal.entry.probe_failed, name))
                continue
            message = f"{name}: its probe failed, and the older {passed} passed: {failed.message}"
            if at.run is not None:
                evidence = {
                    "probe": rules.shown(probe.command),
                    "how": failed.how,
                    "passed": passed,
                }
                try:
                    await asyncio.wait_for(
                        asyncio.to_thread(
                            at.run.judging.mark,
                            name,
                            kind=MarkKind.INVALID,
                            reason=Reason.PROBE_FAILED,
                            message=message,
                            evidence=evidence,
                            fence=at.fence,
                        ),
                        MARK_SECONDS,
                    )
                except (StoreProblem, TimeoutError) as problem:
                    log.warning("%s is not marked yet: %s", name, problem)
                    continue
            at.journal.note(probe_failed=_without(at.journal.entry.probe_failed, name))
            self._condemn(name, message)

    def _condemn(self, name: str, message: str) -> None:
        at, step = self._at, None
        told = {"invalid": str(Reason.PROBE_FAILED), "invalid_message": message}
        for index, candidate in enumerate(at.candidates):
            if candidate.name == name:
                step = candidate.step
                at.candidates[index] = candidate.model_copy(update=told)
        at.tell_candidates()
        at.reporter.add_verdict(
            Verdict(
                name=name,
                step=step,
                reason=str(Reason.PROBE_FAILED),
                message=message,
                at=time.time(),
            )
        )


def _without(failed: dict[str, FailedProbe], name: str) -> dict[str, FailedProbe]:
    return {key: value for key, value in failed.items() if key != name}
