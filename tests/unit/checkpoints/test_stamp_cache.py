"""What is known of a file by its state: kept once where many files say the same, and bounded."""

from __future__ import annotations

from rtj_sidecar.checkpoints.formats.base import FileCheck
from rtj_sidecar.checkpoints.reader import StampCache
from rtj_sidecar.checkpoints.types import Stamp


def stamp(inode: int, *, ctime: int = 0) -> Stamp:
    return Stamp(1, inode, 10, 5, ctime)


def check(step: int) -> FileCheck:
    return FileCheck("torch", True, "3 members match their CRC-32", facts={"step": step})


def test_equal_answers_are_kept_once_and_others_apart() -> None:
    cache = StampCache()
    for inode, step in ((1, 10), (2, 10), (3, 20)):
        cache.put(stamp(inode), "whole", check(step))
    assert cache.get(stamp(1), "whole") is cache.get(stamp(2), "whole")
    assert cache.get(stamp(3), "whole") == check(20)
    cache.put(stamp(4), "whole", FileCheck("torch", True, check(10).detail, facts={"step": True}))
    cache.put(stamp(5), "whole", FileCheck("torch", True, check(10).detail, facts={"step": 1}))
    assert repr(cache.get(stamp(4), "whole")) != repr(cache.get(stamp(5), "whole"))


def test_each_question_has_its_answer_the_newest() -> None:
    cache = StampCache()
    cache.put(stamp(1), "whole", check(10))
    cache.put(stamp(1), "sha256", "old")
    cache.put(stamp(1), "sha256", "new")
    assert cache.get(stamp(1), "sha256") == "new"
    assert cache.get(stamp(1), "whole") == check(10)
    assert cache.get(stamp(1), "names") is None
    assert cache.get(stamp(2), "whole") is None


def test_answers_move_with_a_ctime_and_with_nothing_else() -> None:
    cache = StampCache()
    cache.put(stamp(1), "sha256", "a")
    cache.put(stamp(1, ctime=7), "names", ("x",))
    cache.carry(old=stamp(1), new=stamp(1, ctime=7))
    assert cache.get(stamp(1, ctime=7), "sha256") == "a"
    assert cache.get(stamp(1, ctime=7), "names") == ("x",)
    assert cache.get(stamp(1), "sha256") == "a"
    cache.carry(old=stamp(1), new=stamp(2))
    assert cache.get(stamp(2), "sha256") is None


def test_the_least_recently_used_goes_first() -> None:
    cache = StampCache(limit=2)
    for inode in (1, 2):
        cache.put(stamp(inode), "sha256", str(inode))
    assert cache.get(stamp(1), "sha256") == "1"
    cache.carry(old=stamp(1), new=stamp(1, ctime=9))
    assert cache.get(stamp(2), "sha256") is None
    assert cache.get(stamp(1), "sha256") == "1"
