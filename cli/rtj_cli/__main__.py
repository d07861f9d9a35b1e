"""The command `rtj` (also `kubectl rtj`). Only arguments, output and exit codes are here."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rtj_api.validation_fields import ValidationLevel
from rtj_api.wire import Probe, SidecarConfig
from rtj_sidecar.checkpoints.layouts import UnknownLayoutError, layouts_for
from rtj_sidecar.config import Site
from rtj_sidecar.stores.base import StoreProblem
from rtj_sidecar.stores.open import open_store

from rtj_cli.inspecting import Row, is_url, of_path, of_store
from rtj_cli.place import PlaceTaken, open_place
from rtj_cli.run import LocalRun

USAGE, INVALID = 2, 1

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Training that is impossible to lose: on this machine, without Kubernetes.",
)
note = Console(stderr=True, highlight=False, soft_wrap=True)


@app.callback()
def _root() -> None:
    """Commands below."""


def fail(message: str, code: int = USAGE) -> typer.Exit:
    note.print(f"rtj: {message}", style="red", markup=False)
    return typer.Exit(code)


@app.command(
    "run",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="""
**Exit codes**: the trainer's own (128 + n where signal n killed it) · 0 finished, or the run was
complete already · 2 wrong usage · 70 it cannot go on (the message says why) · 74 finished, but the
last checkpoint did not reach the store · 75 held: no valid checkpoint, the store does not answer,
or the run belongs to another job · 130 stopped before the trainer was started.

**Example**: `rtj run --store file:///data/runs --path out --resume-arg --resume --resume-arg
'$(RTJ_RESUME_CHECKPOINT)' -- python train.py --out out`
""",
)
def run_command(
    command: Annotated[list[str], typer.Argument(help="The trainer, after `--`.")],
    store: Annotated[
        str,
        typer.Option(help="Where checkpoints are kept: file:///directory or s3://bucket/prefix."),
    ],
    path: Annotated[Path, typer.Option(help="The directory that the trainer saves to.")],
    resume_arg: Annotated[
        list[str] | None,
        typer.Option(
            help="A word appended to the command when it resumes; give it once for each word. "
            "`$(RTJ_RESUME_CHECKPOINT)` and `$(RTJ_RESUME_STEP)` are filled in."
        ),
    ] = None,
    run_id: Annotated[
        str | None,
        typer.Option(
            help="Name of the run in the store [default: local/ and the path's last part]."
        ),
    ] = None,
    layout: Annotated[str, typer.Option(help="Layout of the checkpoints.")] = "auto",
    include: Annotated[
        list[str] | None,
        typer.Option(help="Patterns of checkpoints of no known layout: state_*.json."),
    ] = None,
    probe: Annotated[
        str | None,
        typer.Option(
            help="A command, quoted as for a shell, that tests the restored checkpoint before the "
            "trainer starts, with RTJ_RESUME_CHECKPOINT in its environment. 0: good; else the next "
            "older one is tried."
        ),
    ] = None,
    probe_timeout: Annotated[
        float, typer.Option(min=1, help="Seconds after which the probe is killed: it failed.")
    ] = 600.0,
    require_key: Annotated[
        list[str] | None,
        typer.Option(help="A key that a full checkpoint must hold: optimizer, model.head.*."),
    ] = None,
    level: Annotated[
        ValidationLevel, typer.Option(help="full: new NaN are looked for, too.")
    ] = ValidationLevel.FULL,
    max_restarts: Annotated[
        int, typer.Option(min=0, help="Restarts without anything newly durable in between.")
    ] = 10,
    allow_scratch: Annotated[
        bool, typer.Option("--allow-scratch", help="Start at step 0 where no save is valid.")
    ] = False,
    take_over: Annotated[
        bool,
        typer.Option("--take-over", help="The job that had this run has ended: go on with it."),
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Train on although the run is complete.")
    ] = False,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds the trainer has to end when it is asked to.")
    ] = 30.0,
    drain: Annotated[
        float, typer.Option(min=0, help="Seconds to wait for the last upload at the end.")
    ] = 300.0,
    keep_last: Annotated[
        int | None, typer.Option(min=1, help="Saves kept in the store [default: all].")
    ] = None,
    max_upload_bytes_per_second: Annotated[
        int | None,
        typer.Option(min=65536, help="How fast saves may be sent [default: as fast as it goes]."),
    ] = None,
    framework: Annotated[
        str, typer.Option(help="Rendezvous variables to set: none, pytorch or jax.")
    ] = "none",
    endpoint: Annotated[
        str | None, typer.Option(help="URL of the S3 server [default: AWS].")
    ] = None,
    region: Annotated[str | None, typer.Option(help="S3 region.")] = None,
    hold: Annotated[
        float, typer.Option(min=0, help="Seconds to wait for a store that does not answer.")
    ] = 600.0,
    port: Annotated[int, typer.Option(help="Port of /status and /metrics [default: any].")] = 0,
    poll: Annotated[float, typer.Option(min=0.05, help="Seconds between looks at the path.")] = 1.0,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Tell every step.")] = False,
) -> None:
    """Run a trainer that is restarted when it crashes and resumes from its newest valid save.

    Every finished save is proved, copied to the store and committed. Run the same command again,
    here or on another machine with the same `--store` and `--run-id`, and it goes on.
    """
    path = path.absolute()
    try:
        layouts_for(layout=layout, include=include or ())
        open_store(store, endpoint=endpoint, region=region)
        path.mkdir(parents=True, exist_ok=True)
        place = open_place(path)
    except (UnknownLayoutError, StoreProblem) as error:
        raise fail(str(error)) from None
    except PlaceTaken as error:
        raise fail(str(error), 75) from None
    except OSError as error:
        raise fail(f"--path {path}: {error.strerror}") from None
    logging.basicConfig(
        filename=None if verbose else place.root / "agent.log",
        level=logging.INFO,
        format="%(asctime)s %(name)s %(message)s",
    )
    name = run_id or f"local/{re.sub(r'[^A-Za-z0-9._-]', '-', path.name) or 'run'}"
    config = SidecarConfig(
        cluster_uid="local",
        job_uid=place.job_uid(),
        namespace="local",
        job=name.rpartition("/")[2],
        rank=0,
        made_in=1,
        framework=framework,
        procs_per_replica=1,
        run_id=name,
        path=str(path),
        layout=layout,
        include=include or [],
        store_url=store,
        store_endpoint=endpoint,
        store_region=region,
        resume_args=resume_arg or [],
        drain_seconds=drain,
        trainer_grace_seconds=grace,
        mirror="never",
        keep_last=keep_last,
        max_upload_bytes_per_second=max_upload_bytes_per_second,
        poll_seconds=poll,
        status_port=port,
        validation_level=level,
        required_keys=require_key or [],
    )
    site = Site(
        config=config,
        pod_uid="local",
        pod_name="local",
        root=place.root,
        directive=place.directive,
        bind="127.0.0.1",
        port=port,
    )
    local = LocalRun(
        site=site,
        place=place,
        command=command,
        say=lambda text: note.print(f"rtj: {text}", style="cyan", markup=False),
        max_restarts=max_restarts,
        allow_scratch=allow_scratch,
        take_over=take_over,
        again=again,
        hold_seconds=hold,
        probe=Probe(command=shlex.split(probe), timeout_seconds=probe_timeout) if probe else None,
    )
    raise typer.Exit(asyncio.run(local.run()))


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


@app.command(
    "inspect",
    epilog="**Exit codes**: 0 at least one checkpoint and the newest is valid · 1 none is, or the "
    "newest is not · 2 wrong usage, or the place cannot be read.",
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
    if output is Output.JSON:
        typer.echo(json.dumps([row.as_dict() for row in rows], indent=2))
    else:
        _print_table(rows, target)
    if not newest or not newest[0].valid:
        raise typer.Exit(INVALID)


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
            _size(row.size),
            mark,
            f"{row.status}: {row.why}".replace("[", r"\["),
        ]
        table.add_row(*([row.run or ""] if runs else []), *cells)
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 200
    Console(width=width).print(table)
    if any(row.run for row in rows):
        note.print(
            "rtj: ← is what a job resumes from; any other, also on a branch, by its name in "
            "checkpoint.resumeFrom",
            markup=False,
        )


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def main() -> None:
    """Entry point of `rtj` and `kubectl-rtj`."""
    app()


if __name__ == "__main__":
    main()
