"""Two adjacent versions serve one gang: what an older one wrote is understood, what a newer one
adds is passed over, and what an older one cannot do without is still written.

`fixtures/wire/<version>` holds messages as that version wrote them, and the names of its fields.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from rtj_api import wire
from rtj_api.reasons import Charge, Reason
from rtj_api.status import ConditionType, JobPhase, RestartKind, Status
from rtj_sidecar.journal import Journal
from rtj_sidecar.trainer.supervisor_link import SupervisorLink

FIXTURES = Path(__file__).parents[2] / "fixtures" / "wire"
VERSIONS = sorted(path for path in FIXTURES.iterdir() if path.is_dir())
KINDS: dict[str, type[BaseModel]] = {
    "status": Status,
    "report": wire.Report,
    "directive": wire.Directive,
    "config": wire.SidecarConfig,
    "run-go": wire.Go,
    "run-stop": wire.Stop,
    "run-supervise": wire.SuperviseConfig,
    "run-supervisor": wire.SupervisorState,
}

FREE = {"env"}  # names and values as a user has them, no fields of ours


def recorded() -> Iterator[tuple[Path, type[BaseModel]]]:
    for version in VERSIONS:
        for path in sorted(version.glob("*.json")):
            for kind, model in KINDS.items():
                if path.stem == kind or path.stem.startswith(f"{kind}-"):
                    yield path, model


RECORDED = list(recorded())


def lost(old: Any, new: Any, *, at: str = "") -> list[str]:
    """Paths of values that are not in `new` as they are in `old`."""
    if isinstance(old, dict):
        inner = new if isinstance(new, dict) else {}
        return [p for k, v in old.items() for p in lost(v, inner.get(k), at=f"{at}.{k}")]
    if isinstance(old, list):
        others = new if isinstance(new, list) and len(new) == len(old) else [None] * len(old)
        return [p for i, v in enumerate(old) for p in lost(v, others[i], at=f"{at}[{i}]")]
    return [] if old == new else [f"{at}: {old!r} is now {new!r}"]


def with_news(value: Any) -> Any:
    """The same message as a later version may write it: more fields, everywhere."""
    if isinstance(value, dict):
        more = {k: v if k in FREE else with_news(v) for k, v in value.items()}
        return more | {"ofLaterVersion": {"a": [1, 2]}, "zz": None}
    return [with_news(v) for v in value] if isinstance(value, list) else value


def test_there_is_something_recorded_of_every_kind() -> None:
    assert {model for _, model in RECORDED} == set(KINDS.values())


@pytest.mark.parametrize(("path", "model"), RECORDED, ids=lambda v: getattr(v, "stem", None))
def test_what_an_older_version_wrote_is_read_whole(path: Path, model: type[BaseModel]) -> None:
    written = json.loads(path.read_text())
    read = model.model_validate(written)
    again = read.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert lost(written, again) == []


@pytest.mark.parametrize(("path", "model"), RECORDED, ids=lambda v: getattr(v, "stem", None))
def test_what_a_later_version_adds_is_passed_over(path: Path, model: type[BaseModel]) -> None:
    written = json.loads(path.read_text())
    assert model.model_validate(with_news(written)) == model.model_validate(written)


def test_words_of_a_later_version_leave_a_status_readable() -> None:
    """After a downgrade: a status that cannot be read would leave its job without an operator."""
    current = {
        "attempt": 3,
        "kind": "Elastic",
        "cause": "Later",
        "charge": "later",
        "recordedAt": "2026-01-01T00:00:00Z",
    }
    known = {"type": "Running", "status": "True", "reason": "Training"}
    since = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = Status.model_validate(
        {
            "phase": "Resizing",
            "current": current,
            "conditions": [{**known, **since}, {**known, **since, "type": "Resizing"}],
            "stop": {"attempt": 3, "verdict": "Later", "cause": "Later", "since": 5},
        }
    )
    assert status.current is not None
    assert (status.phase, status.current.kind) == (JobPhase.PENDING, RestartKind.RECREATE)
    assert [c.type for c in status.conditions] == [ConditionType.RUNNING]
    assert Charge(status.current.charge) == Charge.INFRASTRUCTURE
    assert status.stop is not None
    assert Reason(status.stop.cause) == Reason.NODE_LEAVING
    with pytest.raises(ValueError, match="conditions"):
        Status.model_validate({"conditions": [{"type": "Running"}]})


def classes(version: Path) -> Iterator[tuple[str, dict[str, Any], type[BaseModel]]]:
    for name, facts in json.loads((version / "models.json").read_text())["models"].items():
        found = getattr(importlib.import_module(facts["module"]), name, None)
        assert found is not None, f"{facts['module']}.{name} is gone: its readers are not"
        yield name, facts, found


def names_of(model: type[BaseModel]) -> dict[str, bool]:
    """By the name on the wire: whether a reader insists on it."""
    return {f.alias or n: f.is_required() for n, f in model.model_fields.items()}


@pytest.mark.parametrize("version", VERSIONS, ids=lambda path: path.name)
def test_no_field_that_an_older_version_knows_has_gone_or_become_another(version: Path) -> None:
    gone = {
        name: sorted(missing)
        for name, facts, model in classes(version)
        if (missing := set(facts["fields"]) - set(names_of(model)))
    }
    assert gone == {}


@pytest.mark.parametrize("version", VERSIONS, ids=lambda path: path.name)
def test_nothing_is_asked_for_that_an_older_version_does_not_write(version: Path) -> None:
    asked = {
        name: sorted(new)
        for name, facts, model in classes(version)
        if (new := {n for n, needed in names_of(model).items() if needed} - set(facts["fields"]))
    }
    assert asked == {}


@pytest.mark.parametrize("version", VERSIONS, ids=lambda path: path.name)
def test_what_an_older_version_insists_on_is_always_written(version: Path) -> None:
    """A field that became optional, and is None, would be left out."""
    left_out = {
        name: sorted(missing)
        for name, facts, model in classes(version)
        if (
            missing := {
                n
                for n in facts["required"]
                if not names_of(model)[n] and field_of(model, n).default is None
            }
        )
    }
    assert left_out == {}


def field_of(model: type[BaseModel], name: str) -> Any:
    return next(f for n, f in model.model_fields.items() if (f.alias or n) == name)


@pytest.mark.parametrize("version", VERSIONS, ids=lambda path: path.name)
def test_no_word_that_an_older_sidecar_may_say_has_gone(version: Path) -> None:
    for name, words in json.loads((version / "models.json").read_text())["enums"].items():
        assert set(words) <= {str(word) for word in getattr(wire, name)}, name


@pytest.mark.parametrize("version", VERSIONS, ids=lambda path: path.name)
def test_an_older_journal_and_supervisor_are_taken_up(version: Path, tmp_path: Path) -> None:
    place = tmp_path / "sidecar.journal"
    place.write_text((version / "run-sidecar.journal").read_text())
    journal = Journal(place)
    assert journal.unreadable is None
    assert (journal.entry.attempt, journal.entry.fence, journal.entry.last_durable_step) == (
        1,
        1,
        json.loads(place.read_text())["lastDurableStep"],
    )
    link = SupervisorLink(tmp_path)
    link.run.mkdir(parents=True, exist_ok=True)
    for name in ("go", "supervisor"):
        (link.run / f"{name}.json").write_text((version / f"run-{name}.json").read_text())
    assert link.told_to_go() == 1
    state = link.state()
    assert state is not None
    assert state.trainer.exit_code == -9
