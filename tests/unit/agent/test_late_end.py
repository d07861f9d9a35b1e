"""The end of an older attempt says nothing any more once the next one has begun."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rtj_api.wire import Directive, Phase, SidecarPhase
from rtj_sidecar.ending import Ending


def directive(attempt: int) -> Directive:
    return Directive(
        job_uid="u", pod_uid="p", rank=0, attempt=attempt, seq=1, phase=Phase.GO, world_size=1
    )


class Gang:
    """A sidecar's parts as `Ending` sees them; `during` happens while it waits for something."""

    def __init__(self, tmp_path: Path, *, during: str) -> None:
        self.directive: Directive | None = directive(1)
        self.phases: list[SidecarPhase] = []
        self.settled = False
        self.told: dict[str, object] = {}
        self._during = during
        self.link = SimpleNamespace(run=tmp_path)
        self.site = SimpleNamespace(config=None, holds=True)
        self.reporter = SimpleNamespace(set=self.told.update)
        self.ship_now = SimpleNamespace(set=lambda: None)

    def set_phase(self, phase: SidecarPhase) -> None:
        self.phases.append(phase)

    def at(self, moment: str) -> Callable[..., Any]:
        async def wait(**_: object) -> None:
            if moment == self._during:
                self.directive = directive(2)

        return wait

    def ending(self, monkeypatch: pytest.MonkeyPatch) -> Ending:
        looking = SimpleNamespace(once_more=self.at("look"), tell=lambda: None)
        shipping = SimpleNamespace(name_the_last=self.at("name"), is_drained=lambda: True)
        station: Any = self
        ending = Ending(station, looking, shipping)  # type: ignore[arg-type]
        monkeypatch.setattr(ending, "logs", SimpleNamespace(away=self.at("log")))
        monkeypatch.setattr(ending, "suspects", SimpleNamespace(last_look=self.at("marks")))
        monkeypatch.setattr(ending, "_outputs", SimpleNamespace(is_due=lambda: False))
        return ending


@pytest.mark.parametrize(
    ("during", "phases", "settled"),
    [
        ("nothing", [SidecarPhase.DRAINED], True),
        ("look", [], False),
        ("name", [], True),
        ("log", [], True),
        ("marks", [], True),
    ],
)
async def test_a_directive_that_comes_meanwhile_has_the_word(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    during: str,
    phases: list[SidecarPhase],
    settled: bool,
) -> None:
    gang = Gang(tmp_path, during=during)
    ending, of = gang.ending(monkeypatch), gang.directive
    await ending.trainer_ended(of=of)
    await ending.drain(of=of)
    assert gang.phases == phases
    assert gang.settled is settled
    assert ("settling" in gang.told) is (during in ("nothing", "log", "marks"))
