"""`rtj checkpoints push|pin|unpin|mark|restore|prune`: each adds to a run what everybody sees."""

from __future__ import annotations

import getpass
import socket
from enum import StrEnum
from typing import Annotated

import typer
from rtj_sidecar.runs.imports.surveying import How
from rtj_sidecar.runs.records import MarkKind

from rtj_cli import keeping, options, saves
from rtj_cli.commands.checkpoints import reached_run
from rtj_cli.commands.importing import scratch_at, tell_imported
from rtj_cli.commands.looking import app
from rtj_cli.importing import add_to_run, looked_at
from rtj_cli.saves import Refused
from rtj_cli.targets import Place
from rtj_cli.telling import Code, Output, progress_of, say, show, size


class Word(StrEnum):
    INVALID = "invalid"
    POISON = "poison"
    GOOD = "good"


MARKED = {
    "name": lambda row: row["name"],
    "mark": lambda row: row["mark"],
    "why": lambda row: row["message"],
}
PLAN = {
    "name": lambda row: row["name"],
    "step": lambda row: "" if row["step"] is None else str(row["step"]),
    "size": lambda row: size(row["bytes"]),
    "stays": lambda row: "no" if row["goes"] else "yes",
    "why": lambda row: row["why"],
}


@app.command("push")
def push_command(
    target: options.Target,
    source: Annotated[
        str, typer.Argument(help="A save on this disk, a directory of them, or a bucket path.")
    ],
    run_id: options.RunId = None,
    take_over: Annotated[
        bool,
        typer.Option("--take-over", help="The job that has this run has certainly ended."),
    ] = False,
    endpoint: options.Endpoint = None,
    source_endpoint: options.SourceEndpoint = None,
    region: options.Region = None,
    namespace: options.Namespace = None,
    context: options.KubeContext = None,
    kubeconfig: options.Kubeconfig = None,
    layout: options.Layout = "auto",
    include: options.Include = None,
    scratch: options.Scratch = None,
    output: options.Form = Output.TABLE,
) -> None:
    """Add one save to a run that no living job holds: proved, hashed, and reached by its name.

    It becomes a branch: nothing resumes from it before a job names it in `resumeFrom`.
    """
    where = source_endpoint or endpoint
    with (
        reached_run(target, run_id, endpoint, region, namespace, context, kubeconfig) as place,
        scratch_at(scratch) as incoming,
    ):
        how = How(incoming=incoming, layout=layout, include=tuple(include or ()), say=say)
        found = looked_at(source, how=how, endpoint=where, region=region)
        total = sum(each.size for each in found.order.saves[:1])
        with progress_of("push", total=total) as moved:
            how = How(
                incoming=incoming,
                layout=layout,
                include=tuple(include or ()),
                progress=moved,
                say=say,
            )
            done = add_to_run(
                place.run, place.store, place.run_id, found, take_over=take_over, how=how
            )
        tell_imported(done, output)
        say(f"a job begins from it with checkpoint.resumeFrom: {done.saves[0].name}")


@app.command("pin")
def pin_command(
    target: options.Target,
    save: options.Save,
    reason: Annotated[str, typer.Option(help="Why, for others.")] = "",
    run_id: options.RunId = None,
    endpoint: options.Endpoint = None,
    region: options.Region = None,
    namespace: options.Namespace = None,
    context: options.KubeContext = None,
    kubeconfig: options.Kubeconfig = None,
    output: options.Form = Output.TABLE,
) -> None:
    """Keep a save whatever retention says, until it is unpinned."""
    with reached_run(target, run_id, endpoint, region, namespace, context, kubeconfig) as place:
        _marked(place, save, MarkKind.PINNED, reason, output)


@app.command("unpin")
def unpin_command(
    target: options.Target,
    save: options.Save,
    reason: Annotated[str, typer.Option(help="Why, for others.")] = "",
    run_id: options.RunId = None,
    endpoint: options.Endpoint = None,
    region: options.Region = None,
    namespace: options.Namespace = None,
    context: options.KubeContext = None,
    kubeconfig: options.Kubeconfig = None,
    output: options.Form = Output.TABLE,
) -> None:
    """Take back every pin of a save, also one of a run that was copying it."""
    with reached_run(target, run_id, endpoint, region, namespace, context, kubeconfig) as place:
        _marked(place, save, MarkKind.UNPINNED, reason, output)


@app.command("mark")
def mark_command(
    target: options.Target,
    save: options.Save,
    word: Annotated[
        Word,
        typer.Argument(
            help="invalid or poison: never resumed from. good: takes back what was said against it."
        ),
    ],
    reason: Annotated[str, typer.Option(help="Why: it is recorded and told.")],
    run_id: options.RunId = None,
    endpoint: options.Endpoint = None,
    region: options.Region = None,
    namespace: options.Namespace = None,
    context: options.KubeContext = None,
    kubeconfig: options.Kubeconfig = None,
    output: options.Form = Output.TABLE,
) -> None:
    """Say for everybody what a save is worth, with who says so and why. Nothing is removed."""
    with reached_run(target, run_id, endpoint, region, namespace, context, kubeconfig) as place:
        _marked(place, save, MarkKind(word.value), reason, output)
        history = place.run.history()
        if word is not Word.GOOD and saves.current_of(history) is None:
            say("no valid save is left: a job of this run will be held", style="yellow")


def _marked(place: Place, name: str, kind: MarkKind, reason: str, output: Output) -> None:
    _, manifest = saves.one(place, place.run.history(), name)
    who = f"{getpass.getuser()}@{socket.gethostname()}"
    show([saves.mark(place, manifest.name, kind=kind, why=reason, who=who)], output, columns=MARKED)


@app.command("restore")
def restore_command(
    target: options.Target,
    save: options.Save,
    days: Annotated[int, typer.Option(min=1, help="How long it can be read then.")] = 7,
    run_id: options.RunId = None,
    endpoint: options.Endpoint = None,
    region: options.Region = None,
    namespace: options.Namespace = None,
    context: options.KubeContext = None,
    kubeconfig: options.Kubeconfig = None,
    output: options.Form = Output.TABLE,
) -> None:
    """Ask the store for the objects of an archived save; hours later it can be resumed from."""
    with reached_run(target, run_id, endpoint, region, namespace, context, kubeconfig) as place:
        _, manifest = saves.one(place, place.run.history(), save)
        asked, there = saves.ask_back(place, manifest, days=days)
        row = {"name": manifest.name, "asked": asked, "readable": there}
        columns = {key: (lambda each, key=key: str(each[key])) for key in row}
        show([row], output, columns=columns)


@app.command("prune")
def prune_command(
    target: options.Target,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; else it is only shown.")] = False,
    keep_last: keeping.KeepLast = None,
    keep_every: keeping.KeepEvery = None,
    keep_best: keeping.KeepBest = None,
    thin: keeping.Thinning = None,
    run_id: options.RunId = None,
    endpoint: options.Endpoint = None,
    region: options.Region = None,
    namespace: options.Namespace = None,
    context: options.KubeContext = None,
    kubeconfig: options.Kubeconfig = None,
    output: options.Form = Output.TABLE,
) -> None:
    """Show what retention keeps, why, and what would go; with --yes it goes.

    By the job's own rules where a job is named and nothing else is said. What goes is marked first
    and cannot be resumed from; its data is removed at the earliest an hour later, by the job's
    sidecar, or, where no job holds the run, by the next prune. Never what is in use, pinned, an
    attempt's beginning, or the last valid one.
    """
    with reached_run(target, run_id, endpoint, region, namespace, context, kubeconfig) as place:
        rules = keeping.rules(
            place.retention, last=keep_last, every=keep_every, best=keep_best, thin=thin
        )
        history = place.run.history()
        if rules.last is None:
            raise Refused(
                "say what to keep with --keep-last (the job has no retention.keepLast)", Code.USAGE
            )
        show(saves.plan(history, rules), output, columns=PLAN)
        if not yes:
            say("nothing was done: give --yes to do it")
            return
        marked, deleted = saves.prune(place, history, rules)
        say(f"marked: {', '.join(marked) or 'none'}; removed: {', '.join(deleted) or 'none'}")
        if left := saves.waiting(place.run.history()):
            say(f"data goes an hour after its mark: {', '.join(left)}")
