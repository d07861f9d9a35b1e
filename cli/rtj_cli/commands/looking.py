"""`rtj checkpoints list|show|verify|pull`: nothing here changes a store."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rtj_sidecar.checkpoints.inspect import inspect_path

from rtj_cli import options, saves
from rtj_cli.commands.checkpoints import app, reached_run
from rtj_cli.commands.guarded import guarded
from rtj_cli.saves import LATEST, Refused
from rtj_cli.telling import Code, Output, progress_of, say, show, size


def _when(row: Any) -> str:
    told = row.get("committedAt")
    return "" if told is None else f"{datetime.fromtimestamp(told, UTC):%Y-%m-%d %H:%M}Z"


def _flags(row: Any) -> str:
    words = [word for word in ("branch", "pinned", "archived") if row.get(word)]
    return " ".join(words)


LIST = {
    "name": lambda row: f"{row['name']}{' ←' if row['current'] else ''}",
    "step": lambda row: "" if row["step"] is None else str(row["step"]),
    "loss": lambda row: "" if row["loss"] is None else f"{row['loss']:.4g}",
    "size": lambda row: size(row["bytes"]),
    "made": _when,
    "layout": lambda row: row["layout"] or "",
    "state": lambda row: row["state"],
    "flags": _flags,
    "why": lambda row: row["why"] or "",
}
CHECKED = {
    "name": lambda row: row["name"],
    "step": lambda row: "" if row["step"] is None else str(row["step"]),
    "files": lambda row: str(row["files"]),
    "size": lambda row: size(row["bytes"]),
    "valid": lambda row: "yes" if row["valid"] else "no",
    "why": lambda row: "; ".join(bad["why"] for bad in row["bad"][:3]) or row["how"],
}


@app.command("list")
def list_command(
    target: options.Target,
    run_id: options.RunId = None,
    endpoint: options.Endpoint = None,
    region: options.Region = None,
    namespace: options.Namespace = None,
    context: options.KubeContext = None,
    kubeconfig: options.Kubeconfig = None,
    output: options.Form = Output.TABLE,
) -> None:
    """List a run's saves: the line of a job newest first, then branches, then what goes.

    By the run's records alone; `verify` looks at the objects. `←` is what a job would resume from.
    """
    with reached_run(target, run_id, endpoint, region, namespace, context, kubeconfig) as place:
        rows = saves.listed(place.run.history())
        show(rows, output, columns=LIST)
        if not rows:
            say(f"run {place.url} holds no save")


@app.command("show")
def show_command(
    target: options.Target,
    save: options.Save = LATEST,
    run_id: options.RunId = None,
    endpoint: options.Endpoint = None,
    region: options.Region = None,
    namespace: options.Namespace = None,
    context: options.KubeContext = None,
    kubeconfig: options.Kubeconfig = None,
    output: options.Form = Output.YAML,
) -> None:
    """Show all that is recorded of one save: where it came from, gates, marks, every file."""
    with reached_run(target, run_id, endpoint, region, namespace, context, kubeconfig) as place:
        history = place.run.history()
        at, manifest = saves.one(place, history, save)
        show([saves.described(history, at, manifest)], output, columns=LIST, one=True)


@app.command("verify")
def verify_command(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="As everywhere; or a directory on this disk (beginning with `/` or `.`), whose "
            "checkpoints are judged by the gates of their layouts.",
        ),
    ],
    save: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SAVE]...", help="Names [default: what a job would resume from]."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every save of the run.")] = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Read and hash every byte in the store.")
    ] = False,
    directory: Annotated[
        Path | None,
        typer.Option("--dir", help="Hash this local copy of the save instead of the store's."),
    ] = None,
    rank: options.Rank = 0,
    run_id: options.RunId = None,
    endpoint: options.Endpoint = None,
    region: options.Region = None,
    namespace: options.Namespace = None,
    context: options.KubeContext = None,
    kubeconfig: options.Kubeconfig = None,
    layout: options.Layout = "auto",
    include: options.Include = None,
    output: options.Form = Output.TABLE,
) -> None:
    """Prove saves: in the store by sizes and checksums, or every byte; or a copy on this disk.

    Changes nothing: what is damaged is told and not marked. Ends with 1 if anything is.
    """
    if target.startswith(("/", ".", "~")):
        with guarded():
            rows = _of_directory(Path(target).expanduser(), layout, include, save)
    else:
        with reached_run(target, run_id, endpoint, region, namespace, context, kubeconfig) as place:
            history = place.run.history()
            names = list(save or ())
            if everything:
                names += [row["name"] for row in saves.listed(history) if row["files"] is not None]
            rows = []
            for name in dict.fromkeys(names or [LATEST]):
                _, manifest = saves.one(place, history, name)
                if directory is not None:
                    rows.append(saves.checked_on_disk(manifest, directory, rank=rank).as_dict())
                else:
                    rows.append(saves.checked_in_store(place, manifest, deep=deep).as_dict())
    show(rows, output, columns=CHECKED)
    if not rows:
        raise typer.Exit(Code.NOT_FOUND)
    if not all(row["valid"] for row in rows):
        raise typer.Exit(Code.INVALID)


def _of_directory(
    path: Path, layout: str, include: list[str] | None, names: list[str] | None
) -> list[dict[str, Any]]:
    rows = []
    for found, verdict in inspect_path(path, layout=layout, include=include or ()):
        if names and found.root_key not in names:
            continue
        bad = [] if verdict.candidate else [{"file": found.root_key, "why": verdict.message}]
        rows.append(
            {
                "name": found.root_key,
                "step": found.step,
                "files": len(found.all_files),
                "bytes": found.size,
                "how": f"{verdict.status.value}: {verdict.message}",
                "valid": verdict.candidate,
                "bad": bad,
            }
        )
    return rows


@app.command("pull")
def pull_command(
    target: options.Target,
    directory: Annotated[Path, typer.Argument(help="Where to; made if it is not there.")],
    save: options.Save = LATEST,
    rank: options.Rank = 0,
    run_id: options.RunId = None,
    endpoint: options.Endpoint = None,
    region: options.Region = None,
    namespace: options.Namespace = None,
    context: options.KubeContext = None,
    kubeconfig: options.Kubeconfig = None,
    output: options.Form = Output.TABLE,
) -> None:
    """Fetch a save into a directory as the framework wrote it, every byte proved, with pointers.

    Files that are there with the right hash are kept: a pull that broke off is done again. Nothing
    else in the directory is touched.
    """
    with reached_run(target, run_id, endpoint, region, namespace, context, kubeconfig) as place:
        history = place.run.history()
        at, manifest = saves.one(place, history, save)
        condemned = history.condemned(at)
        if condemned is not None:
            say(f"{manifest.name} was found {condemned.kind}: {condemned.message}", style="yellow")
        directory.mkdir(parents=True, exist_ok=True)
        with progress_of(manifest.name, total=manifest.bytes) as moved:
            saves.pull(place, history, manifest, directory, rank=rank, progress=moved)
        checked = saves.checked_on_disk(manifest, directory, rank=rank)
        show([checked.as_dict()], output, columns=CHECKED)
        if checked.bad:
            raise Refused(f"{directory}: {checked.bad[0][1]}", Code.INVALID)
        say(f"load {directory / manifest.root_key}")
