"""The fence file: who may claim a directory, who must stop, and calls that never return."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from rtj_api.wire import DirectoryOwner
from rtj_sidecar.directory_fence import (
    Bounded,
    Free,
    Hangs,
    Held,
    Passed,
    Self,
    claimable,
    fence_path,
    overtaken_by,
    read_fence,
    write_fence,
)

ME = Self("c", "job-1", 3)


def owner(
    attempt: int, *, job: str = "job-1", cluster: str = "c", released: bool = False
) -> DirectoryOwner:
    return DirectoryOwner(
        cluster_uid=cluster,
        job_uid=job,
        job=f"ns/{job}",
        attempt=attempt,
        released=released,
        written_at=1.0,
    )


@pytest.mark.parametrize(
    ("there", "may_claim", "expected"),
    [
        (None, False, Free()),
        (owner(2), False, Free()),
        (owner(3), False, Free()),
        (owner(4), False, Passed(4)),
        (owner(4), True, Passed(4)),
        (owner(1, job="job-2"), False, Held("c/job-2", "ns/job-2")),
        (owner(1, cluster="d"), False, Held("d/job-1", "ns/job-1")),
        (owner(9, job="job-2"), True, Free(followed="c/job-2")),
        (owner(9, job="job-2", released=True), False, Free()),
    ],
)
def test_who_may_claim_a_directory(there, may_claim: bool, expected: object) -> None:
    assert claimable(there, me=ME, may_claim=may_claim) == expected


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (None, None),
        (owner(2), None),
        (owner(3), None),
        (owner(4), "attempt 4 of this job"),
        (owner(1, job="job-2"), "job ns/job-2"),
        (owner(1, cluster="d"), "job ns/job-1"),
        (owner(1, job="job-2", released=True), None),
        (owner(4, released=True), "attempt 4 of this job"),
    ],
)
def test_whose_trainer_must_stop(there, expected: str | None) -> None:
    assert overtaken_by(there, me=ME) == expected


def test_it_is_read_as_it_was_written_and_leaves_nothing_else(tmp_path: Path) -> None:
    assert read_fence(tmp_path) is None
    for attempt in (1, 2):
        write_fence(tmp_path, owner(attempt))
        assert read_fence(tmp_path) == owner(attempt)
    assert [p.name for p in (tmp_path / ".rtj").iterdir()] == ["fence"]
    assert fence_path(tmp_path).stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("content", [b"", b"{", b'{"attempt": 3}', b"\xff\xfe", b"[]"])
def test_a_torn_file_is_not_taken_for_an_absent_one(tmp_path: Path, content: bytes) -> None:
    fence_path(tmp_path).parent.mkdir()
    fence_path(tmp_path).write_bytes(content)
    with pytest.raises(OSError, match="cannot be understood"):
        read_fence(tmp_path)


def test_a_directory_that_is_gone_is_not_one_without_a_fence(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_fence(tmp_path / "not-mounted")


def test_a_call_that_hangs_is_left_alone_and_asked_again_when_it_returns() -> None:
    bounded: Bounded[int] = Bounded("test")
    release, calls = threading.Event(), []

    def hang() -> int:
        calls.append("hang")
        release.wait(60)
        return 1

    with pytest.raises(Hangs):
        bounded.call(hang, seconds=0.05)
    with pytest.raises(Hangs):  # the first has not returned: no second one is begun beside it
        bounded.call(lambda: calls.append("more") or 2, seconds=0.05)
    assert calls == ["hang"]
    release.set()
    assert bounded.call(lambda: 3, seconds=30) == 3


def test_a_call_that_fails_says_so() -> None:
    bounded: Bounded[os.stat_result] = Bounded("test")
    with pytest.raises(FileNotFoundError):
        bounded.call(lambda: os.stat("/no/such/file"), seconds=30)
    with pytest.raises(OSError, match="ZeroDivisionError"):
        bounded.call(lambda: 1 // 0, seconds=30)
    assert bounded.call(lambda: os.stat("/"), seconds=30)
