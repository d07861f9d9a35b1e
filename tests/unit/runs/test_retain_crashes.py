"""Retention and archive stopped after any write, and done again: the end is always the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from kit.memory_store import Crash, MemoryStore
from kit.run_writer import run_of
from rtj_api.reasons import Reason
from rtj_sidecar.runs.archive import Archived, NoArchive
from rtj_sidecar.runs.fence import Claimed
from rtj_sidecar.runs.keeping import Keep
from rtj_sidecar.runs.records import MarkKind, Parent, SaveFacts
from rtj_sidecar.runs.run import Run
from rtj_sidecar.runs.ships import Named
from rtj_sidecar.runs.upload import LocalFile

KEEP = Keep(last=2, every=30, archive_after=3600.0)


class Line:
    """A run with nine saves of two files each, and the clock of whoever looks after it."""

    def __init__(self, disk: Path) -> None:
        self.store = MemoryStore()
        self.clock = 1000.0
        run = self.run()
        claimed = run.claim(attempt=1, world_size=1)
        assert isinstance(claimed, Claimed)
        run.set_parent(fence=1, parent=Parent(scratch=True))
        for n in range(1, 10):
            facts = SaveFacts(
                root_key="s", layout="torch", step=10 * n, full_state=True, status="Verified"
            )
            named = run.publishing.name_ship(
                fence=1, n=n, save=facts, seen={0: ["s/a", "s/b"]}, world_size=1, parent=None
            )
            assert isinstance(named, Named)
            files = []
            for path in ("s/a", "s/b"):
                source = disk / f"{n}-{path[-1]}"
                source.write_bytes(f"{path} of {n}".encode())
                files.append(LocalFile(path, source, source.stat().st_size, 0o600))
            run.moving.upload_part(named.ship, files=files, save=facts)
            run.publishing.try_commit(named.ship, fence=1)

    def run(self) -> Run:
        """A sidecar that has just started."""
        return run_of(self.store, now=lambda: self.clock, new_id=lambda: "id", workers=1)

    def look_after(self) -> None:
        """As the holder does after a commit; an hour later once more."""
        for _ in range(2):
            run = self.run()
            run.tending.retain(fence=1, keep=KEEP)
            while isinstance(run.tending.archive(fence=1, keep=KEEP), Archived):
                pass
            self.clock += 3601
        self.run().tending.retain(fence=1, keep=KEEP)

    def state(self) -> dict[str, object]:
        """Everything in the store but times and how often something was written."""
        history = self.run().history()
        return {
            "keys": sorted(self.store.objects),
            "classes": dict(sorted(self.store.classes.items())),
            "marks": {
                str(save): sorted((m.kind.value, m.reason) for m in marks)
                for save, marks in history.marks.items()
            },
        }


def stopped_after(line: Line, calls: int) -> bool:
    """Whether it came so far: dies right after the n-th write of the store."""
    count = 0

    def after(_: str) -> None:
        nonlocal count
        count += 1
        if count > calls:
            raise Crash

    line.store.after_write = after
    try:
        line.look_after()
    except Crash:
        return True
    finally:
        line.store.after_write = lambda _: None
    return False


@pytest.fixture
def line(tmp_path: Path) -> Callable[[], Line]:
    return lambda: Line(tmp_path)


def test_stopped_after_any_write_it_ends_the_same(line: Callable[[], Line]) -> None:
    smooth = line()
    smooth.look_after()
    wanted = smooth.state()
    left = [c.name for c in smooth.run().candidates(smooth.run().history())]
    assert left == ["f1-n9-s90", "f1-n8-s80", "f1-n6-s60", "f1-n3-s30"]
    assert len(set(smooth.store.classes)) == 4, "both files of the two that are kept by `every`"
    calls = 0
    while True:
        each = line()
        if not stopped_after(each, calls):
            break
        alive = [c for c in each.run().candidates(each.run().history()) if not c.invalid]
        assert len(alive) >= 4, "never below what is kept, wherever it stopped"
        for candidate in alive[:2]:
            assert each.run().judging.examine(candidate.name, deep=True) == []
        each.look_after()
        assert each.state() == wanted, f"stopped after write {calls}"
        calls += 1
    assert calls > 30


def test_an_archived_save_is_passed_over_until_it_is_restored(line: Callable[[], Line]) -> None:
    found = line()
    found.look_after()
    run = found.run()
    history = run.history()
    older = [c for c in run.candidates(history) if c.name == "f1-n6-s60"]
    (judged,) = run.judging.vet(older)
    assert judged.invalid == Reason.CHECKPOINT_ARCHIVED
    assert run.history().marks == history.marks, "no verdict on the save itself"
    why = run.judging.why_invalid(history, "f1-n6-s60")
    assert why is not None
    assert "rtj checkpoints restore" in why
    found.store.restored.update(found.store.classes)
    (judged,) = run.judging.vet(older)
    assert judged.invalid is None


def test_a_class_that_is_read_at_once_is_no_archive(line: Callable[[], Line]) -> None:
    found = line()
    found.clock += 3601
    keep = Keep(archive_after=0.0, archive_class="STANDARD_IA")
    assert found.run().tending.archive(fence=1, keep=keep) == Archived("f1-n1-s10")
    run = found.run()
    first = [c for c in run.candidates(run.history()) if c.name == "f1-n1-s10"]
    assert run.judging.vet(first)[0].invalid is None


def test_a_store_without_classes_is_told_and_nothing_is_marked_done(
    line: Callable[[], Line],
) -> None:
    found = line()
    found.store.has_classes = False
    told = found.run().tending.archive(fence=1, keep=Keep(archive_after=0.0))
    assert isinstance(told, NoArchive)
    assert "checkpoint.retention.archiveClass" in told.message
    history = found.run().history()
    assert not any(history.archived(save) for save in history.manifests)


def test_what_is_deleted_meanwhile_is_moved_no_further(line: Callable[[], Line]) -> None:
    found = line()

    def deleted_by_another(key: str) -> None:
        if key.endswith("s/a"):
            found.store.before_write = lambda _: None
            why = {"kind": MarkKind.DELETED, "reason": "CheckpointDurable", "message": ""}
            found.run().judging.mark("f1-n1-s10", **why)

    found.store.before_write = deleted_by_another
    assert found.run().tending.archive(fence=1, keep=Keep(archive_after=0.0)) is None
    assert list(found.store.classes) == ["ns/gpt/checkpoints/f1-n1-s10/s/a"]


def test_a_pin_that_comes_after_the_mark_keeps_the_data(line: Callable[[], Line]) -> None:
    found = line()
    run = found.run()
    run.tending.retain(fence=1, keep=KEEP)
    run.judging.mark("f1-n1-s10", kind=MarkKind.PINNED, reason="Resumed", message="read by another")
    found.clock += 3601
    run.tending.retain(fence=1, keep=KEEP)
    assert found.store.head("ns/gpt/checkpoints/f1-n1-s10/s/a") is not None
    assert found.store.head("ns/gpt/checkpoints/f1-n2-s20/s/a") is None


def test_a_pin_can_be_taken_back_and_given_again(line: Callable[[], Line]) -> None:
    run = line().run()
    name = "f1-n1-s10"
    words: list[bool] = []
    for kind in (
        MarkKind.PINNED,
        MarkKind.PINNED,
        MarkKind.UNPINNED,
        MarkKind.UNPINNED,
        MarkKind.PINNED,
    ):
        run.judging.mark(name, kind=kind, reason="ByUser", message="")
        history = run.history()
        words.append(history.pinned(next(iter(sorted(history.manifests)))))
    assert words == [True, True, False, False, True]
    marks = [mark.kind for mark in history.marks[next(iter(sorted(history.manifests)))]]
    assert marks == [MarkKind.PINNED, MarkKind.UNPINNED, MarkKind.PINNED]
