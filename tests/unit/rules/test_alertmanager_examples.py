"""The sample configurations of Alertmanager: accepted, routed by severity, true to the rules."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from kit import tools
from kit.chart import CHART

RULES = CHART / "files" / "rules.yaml"
EXAMPLES = CHART.parent / "examples"
NAMES = ("alertmanager.yaml", "alertmanager-teams.yaml")


def amtool(*arguments: str | Path) -> str:
    done = subprocess.run([tools.amtool(), *arguments], text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_they_are_accepted_and_route_by_severity(name: str, tmp_path: Path) -> None:
    config = yaml.safe_load((EXAMPLES / name).read_text())
    # amtool before 0.28 does not know it; tests/contract/chart shows it to one that does.
    for receiver in config["receivers"]:
        receiver.pop("msteamsv2_configs", None)
    known = tmp_path / "alertmanager.yaml"
    known.write_text(yaml.safe_dump(config))
    amtool("check-config", known)
    alert = ["alertname=TrainingJobX", "namespace=ml", "name=gpt"]
    for severity, receivers in (
        ("critical", "on-call,team"),
        ("warning", "team"),
        ("info", "report"),
    ):
        route = ["config", "routes", "test", f"--config.file={known}"]
        assert amtool(*route, *alert, f"severity={severity}").split() == [receivers]
    # Without `equal` one job's alert would hide another's.
    assert [rule["equal"] for rule in config["inhibit_rules"]] == [["namespace", "name"]] * 2


def test_they_differ_in_the_chat_only() -> None:
    first, second = (yaml.safe_load((EXAMPLES / name).read_text()) for name in NAMES)
    for config, chat in ((first, "slack_configs"), (second, "msteamsv2_configs")):
        [team] = [each for each in config["receivers"] if each["name"] == "team"]
        assert set(team) == {"name", chat}
        team.pop(chat)
    assert first == second


def test_inhibitions_name_alerts_that_there_are() -> None:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    known = {rule.get("alert") for group in groups for rule in group["rules"]}
    named = re.findall(r'alertname="?~?"?([\w|]+)"', (EXAMPLES / NAMES[0]).read_text())
    assert named
    assert {name for group in named for name in group.split("|")} - {"TrainingJob"} <= known
