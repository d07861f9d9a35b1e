"""Marks of suspect saves: when they are written, and what takes them back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from kit.alone import begin, newest
from kit.orders import first_start, prepared
from kit.podlike import PodLike, trainer_command
from rtj_api.reasons import Reason
from rtj_api.rules.divergence import Kind
from rtj_api.rules.suspicion import point_beyond
from rtj_api.wire import (
    CheckpointView,
    Directive,
    DivergenceView,
    Phase,
    ProgressView,
    Report,
    Resume,
    SidecarPhase,
    Suspect,
)
from rtj_sidecar.runs.history import History
from rtj_sidecar.runs.keys import SaveId, step_in
from rtj_sidecar.runs.records import MarkKind, MarkRecord
from rtj_sidecar.suspects import freed, words_for

from tests.unit.runs.test_lineage import SCRATCH as BEGINNING
from tests.unit.runs.test_lineage import fence, history

BAD, OLDER = "f1-n2-s20", "f1-n1-s10"


def go(*suspects: Suspect, attempt: int = 3) -> Directive:
    return Directive(
        job_uid="job",
        pod_uid="pod",
        rank=0,
        attempt=attempt,
        seq=3,
        phase=Phase.GO,
        world_size=1,
        resume=Resume(run="ns/gpt", name=OLDER, step=10),
        suspects=list(suspects),
    )


def at(step: int | None, *, durable: str | None = None, is_diverged: bool = False) -> Report:
    """Rank 0's report, of fence 3: the trainer has made `step`, the newest durable save is that."""
    return Report(
        job_uid="job",
        pod_uid="pod",
        rank=0,
        boot_id="b",
        sequence=1,
        sent_at=1.0,
        fence=3,
        progress=ProgressView(step=step, source="file", first_step_at=1.0 if step else None),
        checkpoint=CheckpointView(
            last_durable_name=durable,
            last_durable_step=step_in(durable) if durable is not None else None,
        ),
        divergence=DivergenceView(kind=Kind.NOT_FINITE, message="nan") if is_diverged else None,
    )


@pytest.mark.parametrize(
    ("suspect", "report", "passed"),
    [
        (Suspect(name=BAD, past_step=23), at(25, durable="f3-n1-s24"), True),
        # What a trainer does before it is stopped, or the same fault a little later, is no proof.
        (Suspect(name=BAD, past_step=23), at(25, durable=OLDER), False),
        (Suspect(name=BAD, past_step=23), at(25, durable="f3-n1-s23"), False),
        (Suspect(name=BAD, past_step=23), at(25, durable="f3-n1-s24", is_diverged=True), False),
        # Another attempt's save, that became durable late.
        (Suspect(name=BAD, past_step=23), at(25, durable="f2-n9-s24"), False),
        (Suspect(name=BAD, past_step=23), at(25, durable="f3-n1"), True),
        (Suspect(name=BAD), at(11, durable="f3-n1-s11"), True),
        (Suspect(name=BAD), at(11), False),
        (Suspect(name=BAD, past_step=23, is_proved=True), at(None), True),
    ],
)
def test_only_durable_work_beyond_the_point_proves_a_save_bad(
    suspect: Suspect, report: Report, passed: bool
) -> None:
    (word,) = words_for(go(suspect), report)
    assert word.kind is (MarkKind.POISON if passed else MarkKind.SUSPECT)


@pytest.mark.parametrize(
    ("step", "alike", "point"),
    [(24, "TrainingDiverged", 25), (1000, "OutOfMemory", 1050), (None, "exit 1", None)],
)
def test_the_point_is_as_wide_as_the_same_place(
    step: int | None, alike: str, point: int | None
) -> None:
    assert point_beyond(step, alike=alike) == point


def test_nothing_is_said_of_the_save_that_is_resumed() -> None:
    assert words_for(go(Suspect(name=OLDER, is_proved=True)), at(30)) == []


def mark(kind: MarkKind, reason: str, *, job: str = "job") -> MarkRecord:
    return MarkRecord(kind=kind, reason=reason, message="why", by_job_uid=job, marked_at=1.0)


def marked(*marks: MarkRecord) -> History:
    run = history([fence(1, BEGINNING)], {(1, 1): 10, (1, 2): 20})
    return replace(run, marks={SaveId(1, 2): marks})


SUSPECTED = mark(MarkKind.SUSPECT, Reason.CHECKPOINT_SUSPECT)


@pytest.mark.parametrize(
    ("marks", "is_free"),
    [
        ((SUSPECTED,), True),
        ((SUSPECTED, mark(MarkKind.POISON, Reason.CHECKPOINT_POISON)), False),
        ((SUSPECTED, mark(MarkKind.GOOD, Reason.CHECKPOINT_CLEARED)), False),
        ((mark(MarkKind.SUSPECT, Reason.CHECKPOINT_SUSPECT, job="another"),), False),
        ((mark(MarkKind.SUSPECT, Reason.MARKED_BY_PERSON),), False),
        ((mark(MarkKind.POISON, Reason.MARKED_BY_PERSON),), False),
    ],
)
def test_a_suspicion_of_ones_own_is_taken_back_and_no_other_word(
    marks: tuple[MarkRecord, ...], is_free: bool
) -> None:
    found = freed(marked(*marks), go(), job_uid="job")
    assert [w.kind for w in found] == ([MarkKind.GOOD] if is_free else [])
    still = freed(marked(*marks), go(Suspect(name=found[0].name if found else BAD)), job_uid="job")
    assert still == []


def test_a_suspicion_condemns_nothing_and_its_end_pardons_nothing() -> None:
    """Poison condemns; that a suspicion ended takes back no other verdict."""
    save = SaveId(1, 2)
    assert marked(SUSPECTED).condemned(save) is None
    poison = mark(MarkKind.POISON, Reason.CHECKPOINT_POISON)
    assert marked(SUSPECTED, poison).condemned(save) == poison
    torn = mark(MarkKind.INVALID, Reason.CHECKPOINT_TORN)
    cleared = mark(MarkKind.GOOD, Reason.CHECKPOINT_CLEARED)
    assert marked(torn, SUSPECTED, cleared).condemned(save) == torn
    pardon = mark(MarkKind.GOOD, Reason.MARKED_BY_PERSON)
    assert marked(torn, pardon).condemned(save) is None


def test_a_real_sidecar_marks_what_an_older_save_proves_bad(
    pods: list[PodLike], tmp_path: Path
) -> None:
    leave = tmp_path / "leave"
    leave.write_text("30")
    command = lambda path: trainer_command(path, "--limit", str(leave))  # noqa: E731
    pod = begin(pods, tmp_path, command=command)
    first_start(pod)
    pod.until(lambda r: (r.checkpoint.last_durable_step or 0) >= 10)
    leave.write_text("60")
    pod.until(lambda r: (r.checkpoint.last_durable_step or 0) >= 30)
    pod.kill_trainer()
    best = newest(pod.until(lambda r: not r.settling and r.phase is SidecarPhase.DRAINED))
    report = prepared(pod, 2)
    older = next(c for c in report.candidates if c.durable and c.name != best.name)
    leave.write_text("200")
    assert best.step is not None
    assert best.name is not None
    resume = Resume(run="ns/gpt", name=older.name, step=older.step)
    pod.direct(Phase.RESTORE, 2, resume=resume)
    pod.until_phase(SidecarPhase.RESTORED, 2)
    suspect = Suspect(name=best.name, past_step=best.step + 1, why="exit 1 after two steps")
    pod.direct(Phase.GO, 2, resume=resume, suspects=[suspect])

    place = tmp_path / "store/ns/gpt/marks"
    pod.until(lambda _: any(m["kind"] == "poison" for m in _marks(place)), seconds=60)
    words = [(m["kind"], m["reason"]) for m in _marks(place) if m["kind"] != "pinned"]
    assert words[-1] == ("poison", "CheckpointPoison")
    assert "exit 1 after two steps" in _marks(place)[-1]["message"]


def test_the_last_save_of_an_attempt_is_proof_enough(pods: list[PodLike], tmp_path: Path) -> None:
    """The trainer ends well in the same moment: when the pod may end, the mark is there."""
    limit = tmp_path / "limit"
    limit.write_text("10")
    leave = ("--limit", str(limit))
    pod = begin(pods, tmp_path, command=lambda path: trainer_command(path, *leave, steps=30))
    first_start(pod)
    pod.until(lambda r: r.checkpoint.last_durable_step == 10)
    limit.write_text("20")
    pod.until(lambda r: r.checkpoint.last_durable_step == 20)
    pod.kill_trainer()
    pod.until(lambda r: not r.settling and r.phase is SidecarPhase.DRAINED)
    limit.write_text("30")
    report = prepared(pod, 2)
    bad, older = report.candidates[:2]
    assert (bad.step, older.step) == (20, 10)
    assert bad.name is not None
    resume = Resume(run="ns/gpt", name=older.name, step=older.step)
    pod.direct(Phase.RESTORE, 2, resume=resume)
    pod.until_phase(SidecarPhase.RESTORED, 2)
    suspect = Suspect(name=bad.name, past_step=25, why="exit 1 after five steps")
    pod.direct(Phase.GO, 2, resume=resume, suspects=[suspect])
    pod.until(lambda r: r.attempt == 2 and r.phase is SidecarPhase.DRAINED)
    kinds = [m["kind"] for m in _marks(tmp_path / "store/ns/gpt/marks")]
    assert "poison" in kinds, pod.log()[-3000:]


def _marks(place: Path) -> list[dict[str, str]]:
    return [json.loads(f.read_text()) for f in sorted(place.glob("*/*.json"))]
