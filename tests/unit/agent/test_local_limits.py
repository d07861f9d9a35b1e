"""checkpoint.local in a real pod: what stays on its disk, and what a restore may bring there."""

from __future__ import annotations

from pathlib import Path

from kit.orders import SCRATCH, SECONDS, first_start, gone, prepared
from kit.podlike import PodLike, make_pod, trainer_command
from kit.supervised import wait_for
from rtj_api.reasons import Reason
from rtj_api.wire import Phase, Report, Resume, SidecarPhase


def endless(path: Path) -> list[str]:
    return trainer_command(path, steps=100_000)


def newest(report: Report) -> Resume:
    save = next(c for c in report.candidates if c.durable)
    return Resume(run="ns/gpt", name=save.name, step=save.step, durable=True)


def test_a_restore_beyond_the_limit_fetches_nothing_and_says_so(
    pods: list[PodLike], tmp_path: Path
) -> None:
    first = make_pod(tmp_path, store=tmp_path / "store", command=endless)
    pods.append(first)
    first.start()
    first_start(first)
    first.until(lambda r: any(c.durable for c in r.candidates), seconds=SECONDS)
    first.end()
    second = make_pod(
        tmp_path, store=tmp_path / "store", made_in=2, command=endless, max_restore_bytes=10
    )
    pods.append(second)
    second.start()
    report = prepared(second, 2)
    assert list(second.path.rglob("*.pt")) == [], "nothing was fetched to be proved"
    second.direct(Phase.RESTORE, 2, resume=newest(report))
    refused = second.until_phase(SidecarPhase.RESTORED, 2, seconds=SECONDS)
    assert refused.problem is not None
    assert refused.problem.reason == Reason.RESTORE_TOO_LARGE
    assert "maxRestoreBytes allows 10" in refused.problem.message
    assert list(second.path.rglob("*.pt")) == []


def test_so_many_durable_saves_stay_on_a_disk_that_ends_with_the_pod(
    pods: list[PodLike], tmp_path: Path
) -> None:
    pod = make_pod(
        tmp_path, store=tmp_path / "store", command=endless, pod_volume=True, keep_local=3
    )
    pods.append(pod)
    pod.start()
    prepared(pod, 1)
    gone(pod, 1, SCRATCH)
    pod.until(lambda r: (r.checkpoint.last_durable_step or 0) >= 80, seconds=SECONDS)

    def steps() -> list[int]:
        return sorted(int(p.stem.rpartition("_")[2]) for p in pod.path.glob("*.pt"))

    def only_the_newest() -> bool:
        durable = pod.report().checkpoint.last_durable_step or 0
        found = steps()
        older = [step for step in found if step <= durable]
        return 10 not in found and len(older) <= 4

    wait_for(only_the_newest, seconds=SECONDS, why="older saves to go")
    assert len(steps()) >= 2
