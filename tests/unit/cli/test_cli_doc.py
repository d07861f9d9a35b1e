"""The page of the commands is what the parser says, and every command and option is on it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit.podlike import ENVIRONMENT
from rtj_cli.__main__ import COMMANDS as COMMANDS_OF_RTJ
from rtj_cli.telling import CODES, Code

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "checkpoints-cli.md"
CLUSTER_PAGE = ROOT / "docs" / "cli.md"
COMMANDS = ("list", "show", "verify", "pull", "push", "pin", "unpin", "mark", "restore", "prune")


def test_the_page_is_generated() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "cli_doc.py"), "--check"],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["import", *(f"checkpoints {name}" for name in COMMANDS)])
def test_what_help_names_is_on_the_page(rtj: Callable[..., Any], command: str) -> None:
    told = set(re.findall(r"--[a-z-]+", rtj(*command.split(), "--help").out)) - {"--help"}
    section = PAGE.read_text().partition(f"\n## rtj {command}\n")[2].partition("\n## ")[0]
    assert section, command
    missing = {option for option in told if option not in section}
    assert not missing
    assert {"--output"} <= told


@pytest.mark.parametrize("command", sorted(set(COMMANDS_OF_RTJ) - {"checkpoints", "import"}))
def test_what_help_of_the_others_names_is_on_the_other_page(
    rtj: Callable[..., Any], command: str
) -> None:
    told = set(re.findall(r"--[a-z-]+", rtj(command, "--help").out)) - {"--help"}
    section = CLUSTER_PAGE.read_text().partition(f"\n## rtj {command}\n")[2].partition("\n## ")[0]
    assert section, command
    assert {option for option in told if option not in section} == set()


def test_the_exit_codes_are_on_the_page() -> None:
    for code in Code:
        assert f"\n| {code.value} | {CODES[code]} |\n" in CLUSTER_PAGE.read_text()
