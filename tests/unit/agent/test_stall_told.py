"""A trainer without a sign of life, through a real sidecar and supervisor."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.podlike import PodLike, make_pod
from kit.supervised import inner_pid
from rtj_api.rules.hang import Standing
from rtj_api.wire import Phase, Resume, SidecarPhase

# Steps of a tenth of a second; then it waits for ever, as on a lock, at a word.
TRAINER = """
import faulthandler, signal, sys, time
from pathlib import Path
faulthandler.register(signal.SIGUSR2, chain=False)
def waits_for_a_lock():
    time.sleep(600)
step = 0
while True:
    step += 1
    print(f"step {step} loss 2.0", flush=True)
    until = time.monotonic() + 0.1
    while time.monotonic() < until:
        sum(range(2000))
    if Path(sys.argv[1]).exists():
        waits_for_a_lock()
"""

# With a limit of its own it is told soon: the network that it is seen with here is this machine's,
# and may be busy with other things.
LIMITS = {"stack_signal": int(signal.SIGUSR2), "hang_timeout_seconds": 4.0}


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[PodLike]:
    def command(path: Path) -> list[str]:
        return [sys.executable, "-u", "-c", TRAINER, str(tmp_path / "wait")]

    made = make_pod(tmp_path, store=tmp_path / "store", command=command, **LIMITS)
    yield made.start()
    made.end()


def test_it_is_told_with_its_pace_and_what_it_was_doing(pod: PodLike, tmp_path: Path) -> None:
    scratch = Resume(scratch=True)
    pod.direct(Phase.PREPARE, 1)
    pod.until_phase(SidecarPhase.PREPARED, 1)
    pod.direct(Phase.RESTORE, 1, resume=scratch)
    pod.until_phase(SidecarPhase.RESTORED, 1)
    pod.direct(Phase.GO, 1, resume=scratch)
    report = pod.until(lambda r: (r.progress.step or 0) > 50)
    assert report.stall is None
    assert report.trainer.pid is not None

    pid = inner_pid(report.trainer.pid, str(tmp_path / "wait"))
    os.kill(pid, signal.SIGSTOP)
    stall = pod.until(lambda r: r.stall is not None).stall
    assert stall is not None
    assert stall.standing is Standing.STOPPED
    assert stall.pace.usual is not None
    assert stall.pace.usual < 5
    os.kill(pid, signal.SIGCONT)
    pod.until(lambda r: r.stall is None)

    (tmp_path / "wait").touch()
    stall = pod.until(lambda r: r.stall is not None and bool(r.stall.stacks)).stall
    assert stall is not None
    assert stall.standing is not Standing.STOPPED
    report = pod.until(
        lambda r: r.stall is not None and any("waits_for_a_lock" in x for x in r.stall.stacks)
    )
    assert report.phase is SidecarPhase.TRAINING, "a sidecar ends no trainer for it"
