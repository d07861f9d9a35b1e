"""Long tests: repetitions of what a shorter test covers too, for `make test-long`.

A test is long because of what it repeats, never because it fails now and then. What is left out is
said aloud, with how to run it.
"""

from __future__ import annotations

import os

import pytest

LEFT_OUT = "long: make test-long"
IS_LONG_RUN = os.environ.get("RTJ_LONG") == "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if IS_LONG_RUN:
        return
    for item in items:
        if item.get_closest_marker("long") is not None:
            item.add_marker(pytest.mark.skip(reason=LEFT_OUT))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """How many were left out; also into the file $RTJ_LEFT_OUT, for the last lines of a run."""
    skipped = terminalreporter.stats.get("skipped", [])
    left_out = sum(LEFT_OUT in str(report.longrepr) for report in skipped)
    if not left_out or hasattr(config, "workerinput"):
        return
    terminalreporter.write_line(
        f"LEFT OUT: {left_out} long tests. Run them: make test-long, or RTJ_LONG=1", yellow=True
    )
    if place := os.environ.get("RTJ_LEFT_OUT"):
        with open(place, "a", encoding="utf-8") as file:
            file.write(f"{left_out}\n")
