"""What the kernel counts of this container's memory, by the files of both kinds of cgroup."""

from __future__ import annotations

from pathlib import Path

import pytest
from rtj_sidecar.trainer.supervisor import memory

EVENTS = "low 0\nhigh 0\nmax 12\noom {oom}\noom_kill {kills}\noom_group_kill 0\n"


@pytest.mark.parametrize(
    ("name", "text", "hits"),
    [
        ("memory.events", EVENTS.format(oom=3, kills=4), 3),
        ("memory.events", EVENTS.format(oom=0, kills=4), 0),
        ("memory.failcnt", "94\n", 94),
        ("memory.events", "max 1\n", None),
        ("memory.failcnt", "", None),
        ("nothing", "", None),
    ],
)
def test_how_often_it_came_up_against_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, hits: int | None
) -> None:
    (tmp_path / name).write_text(text)
    monkeypatch.setattr(memory, "places", lambda *names: [str(tmp_path / file) for file in names])
    assert memory.limit_hits() == hits


def test_a_kill_and_a_limit_that_was_reached_are_counted_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "memory.events").write_text(EVENTS.format(oom=0, kills=1))
    monkeypatch.setattr(memory, "places", lambda *names: [str(tmp_path / names[0])])
    assert (memory.oom_kills(), memory.limit_hits()) == (1, 0)
