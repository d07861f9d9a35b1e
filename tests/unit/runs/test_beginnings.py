"""Beginnings that a person names: branches of this run, other runs, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit.memory_store import MemoryStore
from kit.run_writer import run_of
from rtj_api.reasons import Reason
from rtj_api.rules.steering import MadeWith, Named, Whose, changes, masked, read_named
from rtj_api.wire import Found, Wanted
from rtj_sidecar.runs.beginnings import acted
from rtj_sidecar.runs.commit import Committed, Dropped
from rtj_sidecar.runs.fence import Claimed, Done
from rtj_sidecar.runs.lineage import End, lineage
from rtj_sidecar.runs.records import MarkKind, Parent, SaveFacts, ShipRecord
from rtj_sidecar.runs.ships import Named as NamedShip
from rtj_sidecar.runs.upload import LocalFile
from rtj_sidecar.stores.base import StoreProblem

SCRATCH = Parent(scratch=True)


class Job:
    """One job's holder of a run, on a store that several may share."""

    def __init__(self, store: MemoryStore, disk: Path, *, run: str, job: str) -> None:
        self.disk = disk
        self.run = run_of(store, run_id=run, job_uid=job, open_place=lambda url: store)

    def begin(self, attempt: int, parent: Parent) -> int:
        claimed = self.run.claim(attempt=attempt, world_size=1, may_claim=True)
        assert isinstance(claimed, Claimed)
        assert isinstance(self.run.set_parent(fence=claimed.fence, parent=parent), Done)
        return claimed.fence

    def save(
        self, fence: int, step: int, *, full_state: bool = True, facts: dict | None = None
    ) -> str:
        facts = SaveFacts(
            root_key="last.pt",
            layout="generic",
            step=step,
            full_state=full_state,
            facts=facts or {},
        )
        n = self.run.next_n(self.run.history(), fence)
        ship = self.run.publishing.name_ship(
            fence=fence, n=n, save=facts, seen={0: ["last.pt"]}, world_size=1, parent=None
        )
        assert isinstance(ship, NamedShip)
        source = self.disk / ship.ship.name
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_bytes(b"weights of step %d" % step)
        size = source.stat().st_size
        file = LocalFile(path="last.pt", source=source, size=size, mode=0o600)
        self.run.moving.upload_part(ship.ship, files=[file], save=facts)
        assert isinstance(self.run.publishing.try_commit(ship.ship, fence=fence), Committed)
        return ship.ship.name

    def find(self, value: str, *, fence: int, asked: str = "spec") -> Found:
        return self.run.find(
            self.run.history(),
            wanted=Wanted(value=value, asked=asked),
            fence=fence,
            incoming=self.disk / "importing",
        )

    def reachable(self) -> list[str]:
        return [c.name for c in self.run.candidates(self.run.history())]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def job(store: MemoryStore, tmp_path: Path) -> Callable[..., Job]:
    return lambda run="ns/gpt", job="job": Job(store, tmp_path / job, run=run, job=job)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("f3-n2-s400", Named(Whose.THIS, save="f3-n2-s400")),
        ("f3-n2", Named(Whose.THIS, save="f3-n2")),
        ("team/gpt", Named(Whose.OTHER, run="team/gpt")),
        ("team/gpt/", Named(Whose.OTHER, run="team/gpt")),
        ("team/gpt/f3-n2-s400", Named(Whose.OTHER, run="team/gpt", save="f3-n2-s400")),
        ("s3://b/p/team/gpt", Named(Whose.PLACE, run="s3://b/p/team/gpt")),
        ("file:///d/gpt/f1-n1", Named(Whose.PLACE, run="file:///d/gpt", save="f1-n1")),
        ("gs://b/old", Named(Whose.PLACE, run="gs://b/old")),
        ("/data/old/", Named(Whose.PATH, run="/data/old")),
        ("/runs/gpt/f1-n1", Named(Whose.PATH, run="/runs/gpt", save="f1-n1")),
    ],
)
def test_what_a_value_names(value: str, named: Named) -> None:
    assert read_named(value) == named


@pytest.mark.parametrize("value", ["", "/", "/data/../ckpt", "a//b", "ftp://b/run", "../x", "a b"])
def test_what_names_nothing_is_told_the_forms(value: str) -> None:
    with pytest.raises(ValueError, match="f3-n2-s400"):
        read_named(value)


def test_changes_between_two_jobs_of_a_run_in_words() -> None:
    old = MadeWith(image="a:1", command=["python", "t.py", "--lr=1"], world_size=2)
    new = MadeWith(image="a:2", command=["python", "t.py", "--lr=2"], world_size=4)
    assert changes(old, new) == [
        "image a:1 -> a:2",
        "world size 2 -> 4",
        "command (without --lr=1, with --lr=2)",
    ]
    assert changes(old, old) == []
    assert changes(MadeWith(), new) == [], "a record of an older version convicts nobody"


def test_a_secret_in_a_command_is_recorded_nowhere() -> None:
    words = ["python", "t.py", "--api-key", "s3cr3t", "--token=abc", "--steps", "5", "HF_TOKEN=x"]
    told = masked(words)
    assert told == [
        "python",
        "t.py",
        "--api-key",
        "***",
        "--token=***",
        "--steps",
        "5",
        "HF_TOKEN=***",
    ]


@pytest.mark.parametrize(
    ("word", "told"),
    [
        (
            "HF_HOME=/x HF_TOKEN=hf_abc python t.py --api-key=sk-1 --steps 5",
            "HF_HOME=/x HF_TOKEN=*** python t.py --api-key=*** --steps 5",
        ),
        ("python t.py --api-key sk-1 --lr 3", "python t.py --api-key *** --lr 3"),
        ("cd /x; export WANDB_API_KEY='sk 1'; run", "cd /x; export WANDB_API_KEY=***; run"),
        ('cd /x && S3_SECRET="s k"t run', "cd /x && S3_SECRET=*** run"),
        ('{"lr": 1, "api_key": "sk-1", "x": 2}', '{"lr": 1, "api_key": *** "x": 2}'),
        ("import os; os.environ['HF_TOKEN'] = 'sk-1'; go()", None),
        ("curl -H 'Authorization: Bearer sk-1' u", None),
        (r'run --config "{\"token\": \"sk-1\"}"', None),
        ("run\nDB_PASS=sk-1\nrun", "run\nDB_PASS=***\nrun"),
        ("X=1 TOKEN='sk-1 unclosed", "X=1 TOKEN=***"),
        ("get https://me:sk-1@host/x", "get https://***@host/x"),
        ("python t.py --steps 5 model.depth=3", "python t.py --steps 5 model.depth=3"),
        ("-key" * 20_000, "-key" * 20_000),
    ],
)
def test_a_secret_within_a_script_is_recorded_nowhere(word: str, told: str | None) -> None:
    (seen,) = masked([word])
    assert "sk" not in seen
    assert told is None or seen == told
    assert masked([seen]) == [seen]
    assert masked(["sh", "-c", word, "--steps", "5"]) == ["sh", "-c", seen, "--steps", "5"]


def test_a_rollback_to_a_branch_by_its_full_name(job) -> None:
    mine = job()
    first = mine.begin(1, SCRATCH)
    names = [mine.save(first, step) for step in (10, 20, 30)]
    second = mine.begin(2, Parent(name=names[0], step=10, asked="request 1"))
    ahead = mine.save(second, 15)
    assert mine.reachable() == [ahead, names[0]]
    third = mine.begin(3, Parent(name=ahead, step=15))
    found = mine.find(names[2], fence=third)
    assert found.problem is None
    assert (found.save.name, found.save.step, found.save.durable) == (names[2], 30, True)
    fourth = mine.begin(4, Parent(name=names[2], step=30, asked="spec"))
    assert mine.reachable() == names[::-1], "and with it what lies before it"
    assert mine.find(ahead, fence=fourth).save.name == ahead, "what was left is a branch by now"
    assert acted(mine.run.history()) == ["request 1", "spec"]


def test_a_name_that_cannot_be_taken_says_why(job) -> None:
    mine = job()
    fence = mine.begin(1, SCRATCH)
    good, bad, old = (mine.save(fence, step) for step in (10, 20, 30))
    mine.run.judging.mark(bad, kind=MarkKind.INVALID, reason="CheckpointCorrupt", message="bit rot")
    mine.run.judging.mark(
        old, kind=MarkKind.DELETED, reason="CheckpointDurable", message="too many"
    )
    for value, words in (
        ("f9-n1-s5", good),  # what there is instead
        ("f1-n1-s999", good),
        (bad, "bit rot"),
        (old, "retention"),
        ("no/such-run", "is no run of this project"),
        ("s3://elsewhere/run", "holds no checkpoint"),
        ("/no/such/directory", "the trainer mounts"),
        ("what is this", "full name"),
    ):
        found = mine.find(value, fence=fence)
        assert found.save is None
        assert words in (found.problem or ""), value


@pytest.mark.parametrize("value", ["runs/other", "s3://bucket/runs/other"])
def test_the_newest_save_of_another_run_is_copied_into_this_one(job, store, value: str) -> None:
    theirs, mine = job("runs/other" if value == "runs/other" else "other", "other"), job()
    there = theirs.begin(1, SCRATCH)
    theirs.save(there, 10)
    best = theirs.save(there, 20)
    theirs.save(there, 30, full_state=False)  # weights only: no beginning by itself
    fence = mine.begin(1, SCRATCH)
    own = mine.save(fence, 5)
    claimed = mine.run.claim(attempt=2, world_size=1)
    assert isinstance(claimed, Claimed)
    found = mine.find(value, fence=claimed.fence)
    assert (found.problem, found.save.step, found.save.durable) == (None, 20, True)
    assert mine.reachable() == [own], "a copy that no attempt started from changes nothing"
    again = mine.find(value, fence=claimed.fence)
    assert again.save.name == found.save.name, "nothing is copied twice"
    parent = Parent(name=found.save.name, step=20, asked=value)
    mine.run.set_parent(fence=claimed.fence, parent=parent)
    later = mine.save(claimed.fence, 25)
    chain = lineage(mine.run.history())
    assert mine.reachable() == [later, found.save.name]
    assert chain.end is End.OTHER_RUN
    assert [str(save) for save in chain.branches] == ["f1-n1"]
    for key in [k.key for k in store.list("") if "other/checkpoints/" in k.key]:
        store.delete(key)
    assert mine.run.judging.examine(found.save.name, deep=True) == [], "the other run may go"
    assert best in {m.name for m in theirs.run.history().manifests.values()}


def test_a_copy_left_by_an_attempt_that_never_began_is_taken_by_the_next(job) -> None:
    theirs, mine = job("other", "other"), job()
    theirs.save(theirs.begin(1, SCRATCH), 20)
    own = mine.save(mine.begin(1, SCRATCH), 5)
    lost = mine.run.claim(attempt=2, world_size=1)
    assert isinstance(lost, Claimed)
    copied = mine.find("other", fence=lost.fence).save
    taken = mine.run.claim(attempt=3, world_size=1)
    assert isinstance(taken, Claimed)
    assert mine.reachable() == [own]
    assert mine.find("other", fence=taken.fence).save.name == copied.name
    mine.run.set_parent(fence=taken.fence, parent=Parent(name=copied.name, step=20, asked="other"))
    assert mine.reachable() == [copied.name], "the own save before it is a branch, no fallback"


def test_a_damaged_save_of_another_run_is_not_copied(job, store) -> None:
    theirs, mine = job("other", "other"), job()
    there = theirs.begin(1, SCRATCH)
    good, bad = theirs.save(there, 10), theirs.save(there, 20)
    store.put(f"other/checkpoints/{bad}/last.pt", b"rotten bytes")
    fence = mine.begin(1, SCRATCH)
    named = mine.find(f"other/{bad}", fence=fence)
    assert named.save is None
    assert "damaged" in (named.problem or "")
    newest = mine.find("other", fence=fence)
    assert newest.save is not None
    assert newest.save.step == 10
    marks = theirs.run.history().marks
    assert {m.kind for found in marks.values() for m in found} == {MarkKind.PINNED}, "no verdict"
    assert good


def test_a_copy_never_stands_for_what_was_named_in_its_place_meanwhile(
    job: Callable[..., Job], store: MemoryStore
) -> None:
    other = job("team/other", "theirs")
    other.save(other.begin(1, SCRATCH), 400)
    mine = job("ns/gpt", "ours")
    fence = mine.begin(1, SCRATCH)
    upload = store.upload_file

    def meanwhile(key: str, *more: Any, **options: Any) -> Any:
        store.upload_file = upload  # type: ignore[method-assign]
        assert mine.save(fence, 70) == "f1-n2-s70", "the number is reserved before the first byte"
        return upload(key, *more, **options)

    store.upload_file = meanwhile  # type: ignore[method-assign]
    found = mine.find("team/other", fence=fence)
    assert found.save is not None
    assert (found.save.name, found.save.step) == ("f1-n1-s400", 400)
    assert mine.reachable() == ["f1-n2-s70"]


def test_a_copy_that_is_tried_again_keeps_its_number_and_is_no_save_before(
    job: Callable[..., Job], store: MemoryStore
) -> None:
    other = job("team/other", "theirs")
    other.save(other.begin(1, SCRATCH), 400)
    mine = job("ns/gpt", "ours")
    fence = mine.begin(1, SCRATCH)
    upload = store.upload_file

    def fails(key: str, *more: Any, **options: Any) -> Any:
        store.upload_file = upload  # type: ignore[method-assign]
        raise StoreProblem(Reason.STORE_UNREACHABLE, "gone", transient=True)

    store.upload_file = fails  # type: ignore[method-assign]
    with pytest.raises(StoreProblem, match="gone"):
        mine.find("team/other", fence=fence)
    history = mine.run.history()
    assert (dict(history.ships), mine.reachable()) == ({}, [])
    assert mine.run.publishing.read_ships(fence=fence) == []
    assert mine.run.publishing.roll_forward(history, fence=fence).committed == ()
    found = mine.find("team/other", fence=fence)
    assert found.save is not None
    assert found.save.name == "f1-n1-s400"


def test_a_ship_is_not_taken_for_the_save_that_has_its_number(job: Callable[..., Job]) -> None:
    mine = job()
    fence = mine.begin(1, SCRATCH)
    mine.save(fence, 10)
    ship = ShipRecord(
        fence=fence,
        n=1,
        name="f1-n1-s20",
        root_key="20",
        layout="generic",
        expected=[0],
        world_size=1,
        named_at=0,
    )
    outcome = mine.run.publishing.try_commit(ship, fence=fence)
    assert isinstance(outcome, Dropped)
    assert mine.reachable() == ["f1-n1-s10"], "and the other is not condemned for it"


def test_what_a_copy_carried_in_the_other_run_is_not_looked_for_in_this_one(
    job: Callable[..., Job],
) -> None:
    other = job("team/other", "theirs")
    carried = [{"path": "best.pt", "fence": 1, "n": 1}]
    other.save(other.begin(1, SCRATCH), 400, facts={"carried": carried, "unit": "step"})
    mine = job("ns/gpt", "ours")
    found = mine.find("team/other", fence=mine.begin(1, SCRATCH))
    assert found.save is not None
    manifest = mine.run.manifest(found.save.name)
    assert manifest is not None
    assert manifest.facts == {"unit": "step"}


def test_a_disk_that_takes_no_copy_is_told_and_tried_again(job: Callable[..., Job]) -> None:
    other = job("team/other", "theirs")
    other.save(other.begin(1, SCRATCH), 400)
    mine = job("ns/gpt", "ours")
    fence = mine.begin(1, SCRATCH)
    mine.disk.mkdir(parents=True, exist_ok=True)
    (mine.disk / "importing").write_text("in the way")
    with pytest.raises(StoreProblem) as raised:
        mine.find("team/other", fence=fence)
    assert (raised.value.reason, raised.value.transient) == (Reason.DISK_FULL, True)
    (mine.disk / "importing").unlink()
    assert mine.find("team/other", fence=fence).save is not None
