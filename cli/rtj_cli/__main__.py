"""The command `rtj` (also `kubectl rtj`). Puts the commands together, no more.

A command's module is imported only when that command is called, for the sidecar's parts and the
stores' clients take longer to import than most answers take to come.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import typer

_HELP = {"help_option_names": ["-h", "--help"]}
_RUN = {"ignore_unknown_options": True, "allow_interspersed_args": False}


@dataclass(frozen=True, slots=True)
class Entry:
    """Module below `rtj_cli.commands`, its function (or Typer, for a group), the part of the help
    that it stands in, and the module's names whose texts are the epilog."""

    module: str
    what: str
    panel: str
    epilog: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


LOOK, ACT, SAVES, FILES = "Look", "Act", "Saves", "Without a cluster"
COMMANDS: Mapping[str, Entry] = {
    "list": Entry("seeing", "list_command", LOOK),
    "describe": Entry("seeing", "describe_command", LOOK),
    "why": Entry("seeing", "why_command", LOOK),
    "timeline": Entry("seeing", "timeline_command", LOOK),
    "events": Entry("seeing", "events_command", LOOK),
    "logs": Entry("reading", "logs_command", LOOK),
    "top": Entry("reading", "top_command", LOOK),
    "report": Entry("reporting", "report_command", LOOK),
    "wait": Entry("waiting", "wait_command", LOOK),
    "watch": Entry("waiting", "watch_command", LOOK),
    "suspend": Entry("wishing", "suspend_command", ACT),
    "resume": Entry("wishing", "resume_command", ACT),
    "restart": Entry("wishing", "restart_command", ACT),
    "allow-scratch": Entry("wishing", "allow_scratch_command", ACT),
    "take-over": Entry("wishing", "take_over_command", ACT),
    "bisect": Entry("wishing", "bisect_command", ACT),
    "checkpoints": Entry("changing", "app", SAVES),
    "import": Entry("importing", "import_command", SAVES, ("importing", "checkpoints")),
    "inspect": Entry("inspecting", "inspect_command", SAVES, ("inspecting",)),
    "debug-bundle": Entry("bundling", "bundle_command", LOOK),
    "version": Entry("versions", "version_command", LOOK),
    "lint": Entry("linting", "lint_command", FILES),
    "import-job": Entry("converting", "import_job_command", FILES),
    "plan": Entry("planning", "plan_command", FILES),
    "run": Entry("running", "run_command", FILES, ("running",), _RUN),
}


def assembled(names: Sequence[str] = tuple(COMMANDS)) -> typer.Typer:
    """The parser with these commands."""
    app = typer.Typer(
        no_args_is_help=True,
        rich_markup_mode="markdown",
        context_settings=_HELP,
        help="Training that is impossible to lose: on this machine, in a store, in a cluster.",
    )
    app.callback()(_root)
    for name in names:
        entry = COMMANDS[name]
        module = import_module(f"rtj_cli.commands.{entry.module}")
        what = getattr(module, entry.what)
        if isinstance(what, typer.Typer):
            app.add_typer(what, name=name, rich_help_panel=entry.panel)
            continue
        told = (import_module(f"rtj_cli.commands.{each}").EPILOG for each in entry.epilog)
        app.command(
            name,
            epilog="".join(told) or None,
            rich_help_panel=entry.panel,
            context_settings=dict(entry.settings),
        )(what)
    return app


def _root() -> None:
    """Commands below."""


def main() -> None:
    """Entry point of `rtj` and `kubectl-rtj`."""
    asked = sys.argv[1:2]
    assembled(asked if asked and asked[0] in COMMANDS else tuple(COMMANDS))()


if __name__ == "__main__":
    main()
