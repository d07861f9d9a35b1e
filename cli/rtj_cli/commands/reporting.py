"""`rtj report`: the page that is sent to the team."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rtj_cli import options
from rtj_cli.commands.asking import asked, look, now
from rtj_cli.gathering import Gathering
from rtj_cli.report.page import page
from rtj_cli.report.story import Story
from rtj_cli.telling import Code, fail, say


def report_command(
    job: options.Job,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="FILE", help="Where to; - is stdout [default: JOB.html]."),
    ] = None,
    no_store: Annotated[
        bool, typer.Option("--no-store", help="Do not ask the store for saves and losses.")
    ] = False,
    operator_namespace: options.OperatorNamespace = None,
    endpoint: options.Endpoint = None,
    region: options.Region = None,
    namespace: options.Namespace = None,
    context: options.KubeContext = None,
    kubeconfig: options.Kubeconfig = None,
) -> None:
    """Write one HTML page of what happened to a job, to be sent to people who were not there.

    Attempts stage by stage, steps and loss across restarts, where the time went, each decision with
    its evidence, saves and events. The file needs no network. What you may not read, or what the
    store does not give from here, is named on the page.
    """
    with asked(namespace, context, kubeconfig) as cluster:
        found = look(cluster, job)
        gathering = Gathering(cluster, found)
        pods = gathering.pods()
        events = gathering.events(pods)
        decisions = gathering.decisions(operator_namespace)
        saves = []
        if no_store:
            gathering.missing.append("saves and losses: --no-store")
        else:
            saves = gathering.saves(endpoint=endpoint, region=region)
        story = Story(
            job=found,
            pods=pods,
            events=events,
            saves=saves,
            decisions=decisions,
            missing=gathering.missing,
            now=now(),
        )
        _write(page(story), to or f"{found.name}.html")
        for each in gathering.missing:
            say(f"not on the page: {each}", style="yellow")


def _write(text: str, to: str) -> None:
    if to == "-":
        typer.echo(text)
        return
    try:
        Path(to).write_text(text, encoding="utf-8")
    except OSError as error:
        raise fail(f"{to}: {error.strerror}", Code.REFUSED) from None
    say(f"wrote {to}")
