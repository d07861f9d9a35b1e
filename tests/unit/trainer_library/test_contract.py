"""What the supervisor says is heard under the very names that the project promises."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
from rtj_api import contract as project
from rtj_trainer import contract

LIBRARY = Path(contract.__file__).parent


def test_every_variable_it_reads_is_one_of_the_projects() -> None:
    promised = {value for name, value in vars(project).items() if name.startswith("ENV_")}
    read = set(re.findall(r"\bRTJ_[A-Z_]+", (LIBRARY / "contract.py").read_text()))
    assert read
    assert read <= promised


def test_what_is_told_is_read(tmp_path: Path) -> None:
    interval = tmp_path / "interval"
    interval.write_text("42\n")
    told = contract.told(
        {
            project.ENV_CHECKPOINT_DIR: "/data",
            project.ENV_RESUME_CHECKPOINT: "",
            project.ENV_RESUME_STEP: "",
            project.ENV_CHECKPOINT_INTERVAL: "600",
            project.ENV_CHECKPOINT_INTERVAL_FILE: str(interval),
            project.ENV_ACCUMULATION: "3",
        }
    )
    assert (told.directory, told.resume, told.resume_step) == (Path("/data"), "", None)
    assert told.accumulation == 3
    assert contract.read_interval(told) == 42
    interval.unlink()
    assert contract.read_interval(told) == 600


def test_alone_nothing_is_told() -> None:
    assert contract.told({}) == contract.Told()


def test_a_variable_that_is_no_number_is_named() -> None:
    with pytest.raises(ValueError, match="RTJ_CHECKPOINT_INTERVAL_SECONDS is 'often'"):
        contract.told({"RTJ_CHECKPOINT_INTERVAL_SECONDS": "often"})


def test_a_stop_is_read_whole_or_not_at_all(tmp_path: Path) -> None:
    place = tmp_path / "stop"
    assert contract.read_stop(place) is None
    assert contract.read_stop(None) is None
    place.write_text('{"step": 1')
    assert contract.read_stop(place) is None
    place.write_text(json.dumps({"step": 120, "reason": "PodEvicted", "until": 1.0}))
    assert contract.read_stop(place) == contract.StopStep(step=120, reason="PodEvicted")


@pytest.mark.parametrize("module", sorted(LIBRARY.glob("*.py")), ids=lambda path: path.name)
def test_it_can_be_read_by_python_3_9(module: Path) -> None:
    tree = ast.parse(module.read_text(), feature_version=(3, 9))
    assert ast.get_docstring(tree), f"{module.name} does not say why it exists"
