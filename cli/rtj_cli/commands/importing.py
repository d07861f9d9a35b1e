"""`rtj import`: a verified run out of checkpoints that another's trainer left."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rtj_sidecar.checkpoints.types import FoundSave
from rtj_sidecar.runs.imports.choosing import Passed
from rtj_sidecar.runs.imports.importing import prove
from rtj_sidecar.runs.imports.places import Directory
from rtj_sidecar.runs.imports.surveying import How, Survey
from rtj_sidecar.stores.open import open_store

from rtj_cli import options
from rtj_cli.commands.guarded import guarded
from rtj_cli.importing import Imported, chosen_of, looked_at, make_run
from rtj_cli.telling import Code, Output, progress_of, say, show, size

EPILOG = """
**Example**: `rtj import /data/old-run --store s3://bucket/runs --run-id team/gpt`, then a job with
`checkpoint.runID: team/gpt` goes on from it.
"""

COLUMNS = {
    "name": lambda row: str(row["name"]),
    "step": lambda row: _text(row.get("step")),
    "epoch": lambda row: _text(row.get("epoch")),
    "loss": lambda row: "" if row.get("loss") is None else f"{row['loss']:.4g}",
    "size": lambda row: "" if row.get("bytes") is None else size(row["bytes"]),
    "why": lambda row: str(row.get("why") or ""),
}


def import_command(
    source: Annotated[
        str,
        typer.Argument(
            help="A directory, a file, a bucket path (s3://bucket/some/ckpts), or a manifest.json "
            "in either."
        ),
    ],
    store: Annotated[
        str, typer.Option(help="Where the run is made: s3://bucket/prefix or file:///directory.")
    ],
    run_id: Annotated[str, typer.Option(help="Name of the new run, such as team/gpt.")],
    last: Annotated[
        int, typer.Option(min=1, help="So many of the newest saves become the run's line.")
    ] = 1,
    everything: Annotated[bool, typer.Option("--all", help="All of them do.")] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only say what would be done; a directory's are proved."),
    ] = False,
    layout: options.Layout = "auto",
    include: options.Include = None,
    endpoint: options.Endpoint = None,
    source_endpoint: options.SourceEndpoint = None,
    region: options.Region = None,
    scratch: options.Scratch = None,
    output: options.Form = Output.TABLE,
) -> None:
    """Make a verified run out of checkpoints that another's trainer left. Needs no cluster.

    Each save is recognised, proved by the gates of its layout and copied with every byte hashed;
    what is torn is refused by its name. The source is only read. Interrupted, it is done again.
    """
    many = None if everything else last
    with guarded(), scratch_at(scratch) as incoming:
        how = How(incoming=incoming, layout=layout, include=tuple(include or ()), say=say)
        found = looked_at(source, how=how, endpoint=source_endpoint or endpoint, region=region)
        if dry_run:
            _tell_plan(found, many=many, how=how, output=output)
            return
        chosen = chosen_of(found, many)
        target = open_store(store, endpoint=endpoint, region=region)
        with progress_of("import", total=_bytes(chosen)) as moved:
            how = How(
                incoming=incoming,
                layout=layout,
                include=tuple(include or ()),
                progress=moved,
                say=say,
            )
            done = make_run(
                target,
                run_id,
                found,
                many=many,
                how=how,
                told=lambda save: say(f"{save.name} is {save.root_key}, {save.status}"),
            )
        tell_imported(done, output)
        say(f"run {run_id} in {target.url} is ready: a job with that runID goes on from it")


@contextmanager
def scratch_at(directory: str | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="rtj-import-", dir=directory) as made:
        yield Path(made) / "save"


def tell_imported(done: Imported, output: Output) -> None:
    for each in done.refused:
        say(f"refused {each}", style="yellow")
    if output in (Output.JSON, Output.YAML):
        show([done.as_dict()], output, columns={}, one=True)
    else:
        show(done.as_dict()["imported"], output, columns=COLUMNS)


def _tell_plan(found: Survey, *, many: int | None, how: How, output: Output) -> None:
    rows: list[dict[str, Any]] = []
    refused = list(found.order.passed)
    for save in chosen_of(found, many):
        why = "looked at, not proved: that needs its files here"
        if isinstance(found.place, Directory):
            outcome = prove(found, save, how=how)
            if isinstance(outcome, Passed):
                refused.append(outcome)
                continue
            why = outcome.verdict.message
        rows.append(
            {
                "name": save.root_key,
                "step": save.step,
                "epoch": save.epoch,
                "loss": save.loss,
                "bytes": save.size,
                "layout": save.layout,
                "why": why,
            }
        )
    for each in refused:
        say(f"refused {each}", style="yellow")
    if output in (Output.JSON, Output.YAML):
        told = [{"name": each.name, "why": each.why} for each in refused]
        show([{"imports": rows, "refused": told}], output, columns={}, one=True)
    else:
        show(rows, output, columns=COLUMNS)
    say("nothing was done (--dry-run)")
    if not rows:
        raise typer.Exit(Code.INVALID)


def _bytes(saves: Any) -> int:
    found: tuple[FoundSave, ...] = tuple(saves)
    return sum(save.size for save in found)


def _text(value: Any) -> str:
    return "" if value is None else str(value)
