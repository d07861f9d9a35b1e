"""Which directives are carried out, and what is remembered of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rtj_api.wire import SEQ, Directive, Phase
from rtj_sidecar.directives import DirectiveFile, accept
from rtj_sidecar.journal import Journal
from rtj_sidecar.runs.records import Parent


def directive(
    attempt: int, phase: Phase, *, job: str = "j", pod: str = "p", claim: bool = False
) -> Directive:
    return Directive(
        job_uid=job,
        pod_uid=pod,
        rank=0,
        attempt=attempt,
        seq=SEQ[phase],
        phase=phase,
        world_size=2,
        may_claim=claim,
    )


@pytest.mark.parametrize(
    ("new", "highest", "accepted"),
    [
        (directive(1, Phase.PREPARE), None, True),
        (directive(1, Phase.RESTORE), directive(1, Phase.PREPARE), True),
        (directive(1, Phase.PREPARE), directive(1, Phase.PREPARE), False),
        (directive(1, Phase.PREPARE, claim=True), directive(1, Phase.PREPARE), True),
        (directive(1, Phase.PREPARE, claim=True), directive(1, Phase.PREPARE, claim=True), False),
        (directive(1, Phase.GO), directive(2, Phase.PREPARE), False),
        (directive(2, Phase.PREPARE), directive(1, Phase.RELEASE), True),
        (directive(9, Phase.GO, job="k"), None, False),
        (directive(9, Phase.GO, pod="q"), None, False),
    ],
)
def test_acceptance(new: Directive, highest: Directive | None, accepted: bool) -> None:
    assert (accept(new, job_uid="j", pod_uid="p", highest=highest) is None) is accepted


def test_the_file_is_read_as_the_kubelet_replaces_it(tmp_path: Path) -> None:
    # A downward-API volume: the name leads through ..data, which is renamed over.
    def publish(text: str, number: int) -> None:
        version = tmp_path / f"..v{number}"
        version.mkdir()
        (version / "directive").write_text(text)
        (tmp_path / "..tmp").symlink_to(version.name)
        os.rename(tmp_path / "..tmp", tmp_path / "..data")

    (tmp_path / "directive").symlink_to("..data/directive")
    file = DirectiveFile(tmp_path / "directive")
    assert file.read() is None
    publish("", 1)
    assert file.read() is None
    publish(directive(1, Phase.PREPARE).dump_json(), 2)
    found = file.read()
    assert found is not None
    assert found.phase is Phase.PREPARE
    assert file.read() is None
    publish('{"attempt": "many"}', 3)
    assert file.read() is None
    assert file.problem is not None
    assert "directive" in file.problem
    publish(directive(1, Phase.GO).dump_json(), 4)
    assert file.read() is not None
    assert file.problem is None


def test_the_journal_survives(tmp_path: Path) -> None:
    path = tmp_path / "sidecar.journal"
    parent = Parent(name="f00000001-n1-s5", step=5)
    Journal(path).write(directive=directive(3, Phase.GO), parent=parent, fence=4)
    entry = Journal(path).entry
    assert entry.attempt == 3
    assert entry.parent == parent
    assert entry.fence == 4


def test_a_broken_journal_is_kept_and_told(tmp_path: Path) -> None:
    path = tmp_path / "sidecar.journal"
    path.write_text("{")
    journal = Journal(path)
    assert journal.unreadable is not None
    assert journal.entry.directive is None
    assert len(list(tmp_path.glob("sidecar.journal.bad-*"))) == 1
