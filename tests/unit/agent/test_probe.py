"""The user's probe: real sidecar, real supervisor; one failure condemns nobody, evidence does."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.podlike import PodLike, make_pod
from kit.supervised import wait_for
from rtj_api.reasons import Reason
from rtj_api.rules.resume import Chosen, Facts, NoChoice, choose
from rtj_api.wire import Candidate, Phase, Probe, Report, Resume, SidecarPhase, TrialState

SCRATCH = Resume(scratch=True)
# Refuses the steps in a file, says so, and counts its runs.
CHECK = """
import os, sys, time
step, place = os.environ["RTJ_RESUME_STEP"], sys.argv[1]
assert os.path.exists(os.environ["RTJ_RESUME_CHECKPOINT"]), "no save where it should be"
open(place + ".runs", "a").write(step + "\\n")
refused = dict(line.split() for line in open(place))
if step in refused:
    print("step", step, "is no good", flush=True)
    if refused[step] == "hang":
        time.sleep(600)
    raise SystemExit(int(refused[step]))
"""


@pytest.fixture
def pods() -> Iterator[list[PodLike]]:
    made: list[PodLike] = []
    yield made
    for pod in made:
        pod.end()


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A run with the durable saves of steps 30 and 40; their names, newest first."""
    place = tmp_path_factory.mktemp("origin")
    pod = make_pod(place, store=place / "store")
    leave = place / "leave"
    leave.write_text("30")
    pod.command += ["--steps", "40", "--every", "30", "--limit", str(leave)]
    pod.start()
    pod.direct(Phase.PREPARE, 1)
    pod.until_phase(SidecarPhase.PREPARED, 1)
    pod.direct(Phase.RESTORE, 1, resume=SCRATCH)
    pod.until_phase(SidecarPhase.RESTORED, 1)
    pod.direct(Phase.GO, 1, resume=SCRATCH)
    pod.until(lambda r: r.checkpoint.last_durable_step == 30)
    leave.write_text("40")
    report = pod.until(lambda r: r.phase is SidecarPhase.DRAINED, seconds=60)
    pod.end()
    return place / "store", [c.name for c in report.candidates]


@pytest.fixture
def saved(origin: tuple[Path, list[str]], tmp_path: Path) -> list[str]:
    """That run in this test's own store; names, newest first."""
    shutil.copytree(origin[0], tmp_path / "store")
    return origin[1]


def probe(tmp_path: Path, refused: str, *, limit: float = 60) -> Probe:
    place = tmp_path / "refused"
    place.write_text(refused)
    return Probe(command=[sys.executable, "-c", CHECK, str(place)], timeout_seconds=limit)


def runs(tmp_path: Path) -> list[str]:
    return (tmp_path / "refused.runs").read_text().split()


def chosen(report: Report) -> Chosen | NoChoice:
    return choose(
        Facts(
            run="ns/gpt",
            world_size=1,
            candidates=report.candidates,
            listed=bool(report.listed),
            pinned={0: report.pinned},
            urls={},
        )
    )


def tried(pod: PodLike, attempt: int, wish: Probe, *, forget: bool = False) -> Report | NoChoice:
    """Prepare, choose, restore with the probe: the report with which that ends."""
    pod.direct(Phase.PREPARE, attempt, forget_probes=forget)
    report = pod.until_phase(SidecarPhase.PREPARED, attempt)
    assert report.phase is SidecarPhase.PREPARED, report.problem
    found = chosen(report)
    if isinstance(found, NoChoice):
        return found
    pod.direct(Phase.RESTORE, attempt, resume=found.resume, probe=wish)
    return pod.until_phase(SidecarPhase.RESTORED, attempt, seconds=60)


def again(pods: list[PodLike], tmp_path: Path, **options: object) -> PodLike:
    pod = make_pod(tmp_path, store=tmp_path / "store", made_in=2, **options)  # type: ignore[arg-type]
    pods.append(pod)
    return pod.start()


def marks(tmp_path: Path) -> list[dict]:
    found = (tmp_path / "store/ns/gpt/marks").rglob("*.json")
    return [json.loads(path.read_text()) for path in found]


def of(report: Report, name: str) -> Candidate:
    return next(c for c in report.candidates if c.name == name)


def test_the_newer_is_marked_when_the_older_passes_and_not_before(
    pods: list[PodLike], saved: list[str], tmp_path: Path
) -> None:
    newest, older, *_ = saved
    wish = probe(tmp_path, "40 3")
    pod = again(pods, tmp_path)
    failed = tried(pod, 2, wish)
    assert isinstance(failed, Report)
    assert failed.phase is SidecarPhase.FAILED
    assert failed.problem is not None
    assert (failed.problem.reason, failed.problem.retrying) == (Reason.PROBE_FAILED, True)
    for words in (newest, "exit code 3", "step 40 is no good", sys.executable):
        assert words in failed.problem.message
    assert of(failed, newest).failed_probe is not None
    assert marks(tmp_path) == []
    passed = tried(pod, 3, wish)
    assert isinstance(passed, Report)
    assert passed.phase is SidecarPhase.RESTORED, passed.problem
    assert passed.trial is not None
    assert (passed.trial.name, passed.trial.state) == (older, TrialState.PASSED)
    (mark,) = marks(tmp_path)
    assert (mark["kind"], mark["reason"]) == ("invalid", "ProbeFailed")
    assert mark["evidence"]["passed"] == older
    assert "exit code 3" in mark["message"]
    # On a line that was left it is no candidate any more, else one that is marked.
    assert {c.invalid for c in passed.candidates if c.name == newest} <= {Reason.PROBE_FAILED}
    assert [(v.name, v.reason) for v in passed.verdicts] == [(newest, Reason.PROBE_FAILED)]
    assert runs(tmp_path) == ["40", "30"]
    # The same save in the same container is not tried again; the trainer goes.
    resume = Resume(run="ns/gpt", name=older, step=30)
    pod.direct(Phase.GO, 3, resume=resume, probe=wish)
    pod.until_phase(SidecarPhase.TRAINING, 3)
    pod.direct(Phase.PREPARE, 4)
    pod.until_phase(SidecarPhase.PREPARED, 4)
    pod.direct(Phase.RESTORE, 4, resume=resume, probe=wish)
    report = pod.until_phase(SidecarPhase.RESTORED, 4)
    assert report.phase is SidecarPhase.RESTORED, report.problem
    assert runs(tmp_path) == ["40", "30"]


def test_two_that_fail_alike_blame_the_probe_and_mark_nothing(
    pods: list[PodLike], saved: list[str], tmp_path: Path
) -> None:
    newest, older, *_ = saved
    wish = probe(tmp_path, "40 3\n30 3")
    pod = again(pods, tmp_path)
    for attempt in (2, 3):
        report = tried(pod, attempt, wish)
        assert isinstance(report, Report)
        assert report.phase is SidecarPhase.FAILED
    held = tried(pod, 4, wish)
    assert isinstance(held, NoChoice)
    assert held.reason == Reason.PROBE_FAILED
    for words in (newest, older, "exit code 3", "is no good"):
        assert words in held.message
    assert marks(tmp_path) == []
    # A person mends it and asks for another try: the newest save comes first again.
    (tmp_path / "refused").write_text("")
    report = tried(pod, 5, wish, forget=True)
    assert isinstance(report, Report)
    assert report.phase is SidecarPhase.RESTORED, report.problem
    assert report.trial is not None
    assert report.trial.name == newest
    assert runs(tmp_path) == ["40", "30", "40"]


def test_a_probe_that_hangs_is_killed_and_counts_as_failed(
    pods: list[PodLike], saved: list[str], tmp_path: Path
) -> None:
    newest, older, *_ = saved
    pod = again(pods, tmp_path)
    # A generous limit for the one that passes would do; both have the same.
    wish = probe(tmp_path, "40 hang", limit=5)
    failed = tried(pod, 2, wish)
    assert isinstance(failed, Report)
    assert failed.problem is not None
    assert "no answer within 5 s" in failed.problem.message
    passed = tried(pod, 3, wish)
    assert isinstance(passed, Report)
    assert passed.phase is SidecarPhase.RESTORED, passed.problem
    assert [(v.name, v.reason) for v in passed.verdicts] == [(newest, Reason.PROBE_FAILED)]
    assert passed.trial is not None
    assert passed.trial.name == older


def test_another_probe_forgets_what_the_old_one_said(
    pods: list[PodLike], saved: list[str], tmp_path: Path
) -> None:
    newest, *_ = saved
    pod = again(pods, tmp_path)
    tried(pod, 2, probe(tmp_path, "40 3"))
    pod.direct(Phase.PREPARE, 3)
    report = pod.until_phase(SidecarPhase.PREPARED, 3)
    assert of(report, newest).failed_probe is not None
    other = probe(tmp_path, "", limit=61)
    pod.direct(Phase.RESTORE, 3, resume=Resume(run="ns/gpt", name=newest, step=40), probe=other)
    report = pod.until_phase(SidecarPhase.RESTORED, 3)
    assert report.phase is SidecarPhase.RESTORED, report.problem
    assert marks(tmp_path) == []


def test_what_cannot_be_run_says_nothing_of_the_save(
    pods: list[PodLike], saved: list[str], tmp_path: Path
) -> None:
    newest, *_ = saved
    pod = again(pods, tmp_path)
    report = tried(pod, 2, Probe(command=["/no/such/check", "x"]))
    assert isinstance(report, Report)
    assert report.problem is not None
    assert (report.problem.reason, report.problem.retrying) == (Reason.PROBE_NOT_RUN, False)
    assert "/no/such/check" in report.problem.message
    assert of(report, newest).failed_probe is None


def test_without_python_in_the_image_it_is_refused(
    pods: list[PodLike], saved: list[str], tmp_path: Path
) -> None:
    pod = make_pod(tmp_path, store=tmp_path / "store", made_in=3)
    pod.shell = "sh"
    pods.append(pod)
    pod.start()
    report = tried(pod, 3, Probe(command=["true"]))
    assert isinstance(report, Report)
    assert report.problem is not None
    assert report.problem.reason == Reason.PROBE_NOT_RUN
    assert "python3" in report.problem.message


def test_a_sidecar_that_dies_meanwhile_hears_the_same_answer(
    pods: list[PodLike], saved: list[str], tmp_path: Path
) -> None:
    newest, *_ = saved
    pod = again(pods, tmp_path)
    place = tmp_path / "refused"
    place.write_text("")
    code = CHECK + "while not os.path.exists(place + '.leave'): time.sleep(0.02)\n"
    wish = Probe(command=[sys.executable, "-c", code, str(place)], timeout_seconds=60)
    pod.direct(Phase.PREPARE, 2)
    pod.until_phase(SidecarPhase.PREPARED, 2)
    resume = Resume(run="ns/gpt", name=newest, step=40)
    pod.direct(Phase.RESTORE, 2, resume=resume, probe=wish)
    report = pod.until(lambda r: r.trial is not None and r.trial.state is TrialState.RUNNING)
    assert report.phase is SidecarPhase.RESTORING
    wait_for(lambda: (tmp_path / "refused.runs").exists())
    pod.kill_agent()
    pod.start_agent()
    report = pod.until(lambda r: r.attempt == 2)
    assert report.trial is not None, "else the operator takes its time for a restore that stalls"
    assert (report.trial.state, report.trial.limit_seconds) == (TrialState.RUNNING, 60)
    (tmp_path / "refused.leave").touch()
    report = pod.until(lambda r: r.phase in (SidecarPhase.RESTORED, SidecarPhase.FAILED))
    assert report.phase is SidecarPhase.RESTORED, report.problem
    assert runs(tmp_path) == ["40"]


def test_a_save_made_before_a_key_was_required_is_looked_into_once_restored(
    pods: list[PodLike], saved: list[str], tmp_path: Path
) -> None:
    newest, older, *_ = saved
    pod = again(pods, tmp_path, required_keys=["model", "dataloader"])
    wish = probe(tmp_path, "")
    failed = tried(pod, 2, wish)
    assert isinstance(failed, Report)
    assert failed.problem is not None
    assert (failed.problem.reason, failed.problem.retrying) == ("RequiredKeyMissing", True)
    for words in (newest, "'dataloader'", ".pt"):
        assert words in failed.problem.message
    assert of(failed, newest).invalid == Reason.REQUIRED_KEY_MISSING
    failed = tried(pod, 3, wish)
    assert isinstance(failed, Report)
    assert of(failed, older).invalid == Reason.REQUIRED_KEY_MISSING
    # Each costs a whole restore: no third one is tried by itself.
    assert failed.problem is not None
    assert (failed.problem.reason, failed.problem.retrying) == ("RequiredKeyMissing", False)
    for words in ("2 saves", newest, older, "lack 'dataloader'", "requiredKeys"):
        assert words in failed.problem.message
    held = tried(pod, 4, wish)
    assert isinstance(held, NoChoice)
    assert held.reason == Reason.NO_VALID_CHECKPOINT
    assert "'dataloader'" in held.message
    assert marks(tmp_path) == []
