"""A person marks a save while its job trains: the job never goes on from it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

from kit import toy_trainer
from kit.alone import begin, committed, newest, result
from kit.memory_store import MemoryStore
from kit.orders import gone, prepared
from kit.podlike import PodLike
from rtj_api.reasons import Reason
from rtj_api.wire import Candidate, Phase, SidecarPhase, TrainerState
from rtj_cli import saves
from rtj_cli.targets import Place, run_in
from rtj_sidecar.owning import Owning, judged_anew
from rtj_sidecar.runs.commit import Committed
from rtj_sidecar.runs.records import MarkKind, Parent, SaveFacts
from rtj_sidecar.runs.ships import Named
from rtj_sidecar.runs.upload import LocalFile
from rtj_sidecar.stores.open import open_store


def test_a_restart_in_place_from_a_save_that_was_just_marked_is_given_up(
    pods: list[PodLike], tmp_path: Path
) -> None:
    pod = begin(pods, tmp_path)
    prepared(pod, 1)
    gone(pod, 1)
    pod.until(lambda r: (r.checkpoint.last_durable_step or 0) >= 30)
    pod.kill_trainer()
    best = newest(pod.until(lambda r: not r.settling and r.phase is SidecarPhase.DRAINED))
    assert best.name is not None
    store = open_store((tmp_path / "store").as_uri())
    place = Place(run_in(store, "ns/gpt"), store, "ns/gpt")
    saves.mark(place, best.name, kind=MarkKind.POISON, why="its loss rose", who="ann")

    pod.direct(Phase.GO, 2, resume=best, fast=True)
    report = pod.until(lambda r: r.attempt == 2 and r.phase is SidecarPhase.FAILED)
    assert report.problem is not None
    assert report.problem.reason == Reason.MARKED_BY_PERSON
    assert "its loss rose" in report.problem.message
    pod.until(lambda r: r.trainer.state is TrainerState.EXITED)

    older = newest(prepared(pod, 3))
    assert older.step is not None
    assert best.step is not None
    assert older.step < best.step
    gone(pod, 3, older)
    pod.until(lambda r: r.attempt == 3 and r.phase is SidecarPhase.DRAINED, seconds=60)
    assert result(pod) == f"RESULT 200 {toy_trainer.expected(200)}"
    assert f"at step {older.step}" in pod.output()
    assert {m["attempt"] for m in committed(tmp_path / "store")} == {1, 3}


def test_a_mark_is_seen_between_saves(tmp_path: Path) -> None:
    run = run_in(MemoryStore(), "ns/gpt", job_uid="job")
    run.claim(attempt=1, world_size=1)
    run.set_parent(fence=1, parent=Parent(scratch=True))
    for n in (1, 2):
        facts = SaveFacts(root_key=f"s{n}", layout="generic", step=n, status="Verified")
        named = run.publishing.name_ship(
            fence=1, n=n, save=facts, seen={0: ["."]}, world_size=1, parent=None
        )
        assert isinstance(named, Named)
        (tmp_path / "file").write_text(f"save {n}")
        local = LocalFile(f"s{n}", tmp_path / "file", 6, 0o644)
        run.moving.upload_part(named.ship, files=[local], save=facts)
        assert isinstance(run.publishing.try_commit(named.ship, fence=1), Committed)
    told: list[list[str | None]] = []
    at = SimpleNamespace(candidates=run.candidates(run.history()))
    at.tell_candidates = lambda: told.append([c.invalid for c in at.candidates])
    owning = Owning(at, None)  # type: ignore[arg-type]
    asyncio.run(owning.look_at_marks(run))
    run.judging.mark(
        "f1-n2-s2", kind=MarkKind.POISON, reason=Reason.MARKED_BY_PERSON, message="ann: rose"
    )
    asyncio.run(owning.look_at_marks(run))
    asyncio.run(owning.look_at_marks(run))
    assert told == [[None, None], ["MarkedByPerson", None]], "and no word without news"


def test_what_a_person_takes_back_says_nothing_any_more() -> None:
    marked = Candidate(name="f1-n1", durable=True, invalid=str(Reason.MARKED_BY_PERSON))
    torn = Candidate(name="f1-n2", durable=True, invalid=str(Reason.CHECKPOINT_TORN))
    fresh = [c.model_copy(update={"invalid": None}) for c in (marked, torn)]
    assert [c.invalid for c in judged_anew([marked, torn], fresh)] == [None, "CheckpointTorn"]
