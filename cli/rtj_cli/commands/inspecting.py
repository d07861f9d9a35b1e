"""`rtj inspect`: of each checkpoint whether it is valid, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rtj_sidecar.checkpoints.layouts import UnknownLayoutError
from rtj_sidecar.stores.base import StoreProblem

from rtj_cli.inspecting import Row, is_url, of_path, of_store
from rtj_cli.telling import Code, Output, fail, note, print_table, show, size

EPILOG = (
    "**Exit codes**: 0 at least one checkpoint and the newest is valid · 1 none is, or the "
    "newest is not · 2 wrong usage, or the place cannot be read."
)


def inspect_command(
    target: Annotated[str, typer.Argument(help="A directory, a file, or the URL of a store.")],
    run_id: Annotated[str | None, typer.Option(help="Only this run of the store.")] = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Read every byte of the store's objects.")
    ] = False,
    layout: Annotated[str, typer.Option(help="Layout of the checkpoints.")] = "auto",
    include: Annotated[
        list[str] | None,
        typer.Option(help="Patterns of checkpoints of no known layout: state_*.json."),
    ] = None,
    settle: Annotated[
        float, typer.Option(min=0, help="Seconds without change; 0: no trainer writes there now.")
    ] = 0.0,
    endpoint: Annotated[
        str | None, typer.Option(help="URL of the S3 server [default: AWS].")
    ] = None,
    region: Annotated[str | None, typer.Option(help="S3 region.")] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="Form.")] = Output.TABLE,
) -> None:
    """Say of each checkpoint whether it is valid, and why. Changes nothing.

    Of a store: what a job of the run would resume from, newest first, then the saves on branches.
    """
    try:
        if is_url(target):
            rows = of_store(target, run_id=run_id, deep=deep, endpoint=endpoint, region=region)
            newest = [row for row in rows if not row.branch][:1]
        else:
            rows = of_path(Path(target), layout=layout, include=include or (), settle=settle)
            newest = rows[-1:]
    except (FileNotFoundError, UnknownLayoutError, StoreProblem, LookupError) as error:
        raise fail(str(error.args[0]) if isinstance(error, LookupError) else str(error)) from None
    except OSError as error:
        raise fail(f"{target}: {error.strerror or error}") from None
    if output is Output.TABLE:
        _print_table(rows, target)
    else:
        show([row.as_dict() for row in rows], output, columns={})
    if not newest or not newest[0].valid:
        raise typer.Exit(Code.INVALID)


def _print_table(rows: list[Row], target: str) -> None:
    if not rows:
        note.print(f"rtj: no checkpoint in {target}", markup=False)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    runs = len({row.run for row in rows}) > 1
    for column in (["run"] if runs else []) + [
        "checkpoint",
        "step",
        "loss",
        "size",
        "valid",
        "why",
    ]:
        table.add_column(column, overflow="fold", no_wrap=column in ("step", "size", "valid"))
    for row in rows:
        mark = {True: "[green]yes[/]", False: "[red]no[/]", None: "[yellow]?[/]"}[row.valid]
        cells = [
            f"{row.name}{' ←' if row.current else ' (branch)' if row.branch else ''}",
            "" if row.step is None else str(row.step),
            "" if row.loss is None else f"{row.loss:.4g}",
            size(row.size),
            mark,
            f"{row.status}: {row.why}".replace("[", r"\["),
        ]
        table.add_row(*([row.run or ""] if runs else []), *cells)
    print_table(table)
    if any(row.run for row in rows):
        note.print(
            "rtj: ← is what a job resumes from; any other, also on a branch, by its name in "
            "checkpoint.resumeFrom",
            markup=False,
        )
