"""What the kernel counts of this container's memory, by the files of both kinds of cgroup."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from rtj_sidecar.trainer.supervisor import memory

EVENTS = "low 0\nhigh 0\nmax 12\noom {oom}\noom_kill {kills}\noom_group_kill 0\n"
LEGACY = Path("/sys/fs/cgroup/memory")
MIB = 1 << 20


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(memory, "places", lambda *names: [str(tmp_path / n) for n in names if n])
    return tmp_path


@pytest.mark.parametrize(
    ("text", "hits"),
    [(EVENTS.format(oom=3, kills=4), 3), (EVENTS.format(oom=0, kills=4), 0), ("max 1\n", None)],
)
def test_how_often_it_came_up_against_its_limit(files: Path, text: str, hits: int | None) -> None:
    assert memory.limit_hits() is None
    (files / "memory.events").write_text(text)
    assert memory.limit_hits() == hits


@pytest.mark.parametrize(
    ("before", "now", "is_below"), [(0, 0, True), (2, 2, True), (2, 3, False), (None, 1, False)]
)
def test_an_unchanged_count_says_that_an_ancestor_had_none_left(
    files: Path, before: int | None, now: int, is_below: bool
) -> None:
    (files / "memory.events").write_text(EVENTS.format(oom=now, kills=1))
    assert memory.was_below_limit(before) is is_below


@pytest.mark.parametrize(
    ("peak", "limit", "is_below"),
    [
        (160 * MIB, 160 * MIB, False),
        (159 * MIB, 160 * MIB, False),
        (100 * MIB, 160 * MIB, True),
        (100 * MIB, 1 << 63, True),
        (None, 160 * MIB, False),
    ],
)
def test_an_older_cgroup_tells_it_by_its_highest_use(
    files: Path, peak: int | None, limit: int, is_below: bool
) -> None:
    (files / "memory.limit_in_bytes").write_text(f"{limit}\n")
    if peak is not None:
        (files / "memory.max_usage_in_bytes").write_text(f"{peak}\n")
    assert memory.was_below_limit(None) is is_below


@pytest.mark.skipif(
    os.getuid() != 0 or not (LEGACY / "memory.limit_in_bytes").exists(),
    reason="needs root and a cgroup v1 of memory",
)
@pytest.mark.parametrize(("outer", "inner", "is_below"), [(512, 64, False), (64, 512, True)])
def test_the_kernel_kills_at_its_own_limit_or_at_that_of_its_pod(
    monkeypatch: pytest.MonkeyPatch, outer: int, inner: int, is_below: bool
) -> None:
    pod = LEGACY / f"rtj-test-{uuid.uuid4().hex[:8]}"
    container = pod / "trainer"
    container.mkdir(parents=True)
    monkeypatch.setattr(memory, "places", lambda _, name: [str(container / name)] if name else [])
    try:
        (pod / "memory.limit_in_bytes").write_text(str(outer * MIB))
        (container / "memory.limit_in_bytes").write_text(str(inner * MIB))
        hungry = f"open('{container}/cgroup.procs','w').write('0'); bytearray({200 * MIB})"
        assert subprocess.run([sys.executable, "-c", hungry], check=False).returncode == -9
        assert memory.oom_kills() == 1
        assert memory.was_below_limit(None) is is_below
    finally:
        container.rmdir()
        pod.rmdir()
