"""The command `rtj` (also `kubectl rtj`). Puts the commands together, no more."""

from __future__ import annotations

import typer

from rtj_cli.commands import changing, checkpoints, importing, inspecting, planning, running

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Training that is impossible to lose: on this machine, in a store, in a cluster.",
)


@app.callback()
def _root() -> None:
    """Commands below."""


app.command(
    "run",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog=running.EPILOG,
)(running.run_command)
app.command("inspect", epilog=inspecting.EPILOG)(inspecting.inspect_command)
app.command("import", epilog=importing.EPILOG + checkpoints.EPILOG)(importing.import_command)
app.command("plan")(planning.plan_command)
# Each of the two modules puts its commands into the group.
app.add_typer(changing.app, name="checkpoints")


def main() -> None:
    """Entry point of `rtj` and `kubectl-rtj`."""
    app()


if __name__ == "__main__":
    main()
