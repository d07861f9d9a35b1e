"""`rtj list|describe|why|timeline|events`: looks at jobs in the cluster; changes nothing."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rtj_cli import options
from rtj_cli.cluster import JOBS
from rtj_cli.commands.asking import asked, look, now, pods_of
from rtj_cli.jobs import seen, shown
from rtj_cli.telling import Output, say, show, tell
from rtj_cli.views import describing, happened, listing, timeline, why


def list_command(
    everywhere: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="Of all namespaces.")
    ] = False,
    selector: Annotated[
        str | None, typer.Option("--selector", "-l", help="Only jobs with these labels: a=b.")
    ] = None,
    wide: Annotated[
        bool, typer.Option("--wide", "-w", help="Also ranks, spares and queue.")
    ] = False,
    namespace: options.Namespace = None,
    context: options.KubeContext = None,
    kubeconfig: options.Kubeconfig = None,
    output: options.Form = Output.TABLE,
) -> None:
    """List jobs, newest first: where each is, how much is safe, how well it used its time.

    `durable` is the newest step that the store holds whole, `goodput` the share of its
    life in which a job made new steps.
    """
    with asked(namespace, context, kubeconfig) as cluster:
        found = cluster.items(JOBS, selector=selector, everywhere=everywhere)
        at = now()
        jobs = listing.newest_first(seen(raw) for raw in found)
        rows = [listing.row(job) for job in jobs]
        if not rows:
            say("no ResumableTrainingJob here" + ("" if everywhere else "; -A looks everywhere"))
        columns = listing.columns(now=at, everywhere=everywhere, wide=wide)
        show(rows, output, columns=columns, name=lambda row: f"{options.NAMED}/{row['name']}")


def describe_command(
    job: options.Job,
    namespace: options.Namespace = None,
    context: options.KubeContext = None,
    kubeconfig: options.Kubeconfig = None,
    output: options.Form = Output.TABLE,
) -> None:
    """Show all of one job: saves, budgets, where its time went, conditions, pods and attempts.

    With `-o json|yaml`: the object itself.
    """
    with asked(namespace, context, kubeconfig) as cluster:
        found = look(cluster, job)
        if output is not Output.TABLE:
            show([shown(found.raw)], output, columns={}, one=True, name=_kubectl_name)
            return
        pods = pods_of(cluster, found)
        tell(describing.lines(found, pods=pods, now=now()))


def why_command(
    job: options.Job,
    namespace: options.Namespace = None,
    context: options.KubeContext = None,
    kubeconfig: options.Kubeconfig = None,
    output: options.Form = Output.TABLE,
) -> None:
    """Say in a few lines what a job does or waits for, on what evidence, and what to do next.

    `-` is evidence, `→` a next thing to do.
    """
    with asked(namespace, context, kubeconfig) as cluster:
        found = look(cluster, job)
        told = why.explain(found, pods=pods_of(cluster, found), now=now())
        if output is Output.TABLE:
            tell(told.lines())
            return
        row: dict[str, Any] = {
            "name": found.name,
            "namespace": found.namespace,
            "phase": found.status.phase.value,
            "reason": found.reason,
            "headline": told.headline,
            "evidence": list(told.evidence),
            "next": list(told.next),
        }
        show([row], output, columns={}, one=True, name=lambda row: str(row["reason"]))


def timeline_command(
    job: options.Job,
    namespace: options.Namespace = None,
    context: options.KubeContext = None,
    kubeconfig: options.Kubeconfig = None,
    output: options.Form = Output.TABLE,
) -> None:
    """Draw the job's attempts: why each was made, who was to blame, and each stage until work.

    `status` keeps the last ten attempts; `rtj report` draws them on a page.
    """
    with asked(namespace, context, kubeconfig) as cluster:
        found = look(cluster, job)
        at = now()
        if output is Output.TABLE:
            tell([f"{found.full_name}, {found.status.phase.value}", ""])
            tell(timeline.lines(found, now=at))
            return
        rows = timeline.rows(found, now=at)
        show(rows, output, columns={}, name=lambda row: str(row["attempt"]))


def events_command(
    job: options.Job,
    warnings: Annotated[bool, typer.Option("--warnings", help="Only warnings.")] = False,
    namespace: options.Namespace = None,
    context: options.KubeContext = None,
    kubeconfig: options.Kubeconfig = None,
    output: options.Form = Output.TABLE,
) -> None:
    """List the events of a job and of its pods, oldest first, repeated ones once.

    The API server keeps events for an hour; what the job itself remembers is `rtj timeline`.
    """
    with asked(namespace, context, kubeconfig) as cluster:
        found = look(cluster, job)
        raw = cluster.items("events.events.k8s.io", namespace=found.namespace)
        names = {str(pod["metadata"]["name"]) for pod in pods_of(cluster, found)}
        rows = happened.rows(raw, job=found, pods=names)
        if warnings:
            rows = [row for row in rows if row["type"] == "Warning"]
        if not rows:
            say("no event is left; `rtj timeline` says what the job remembers")
        columns = happened.columns(now=now())
        show(rows, output, columns=columns, name=lambda row: str(row["reason"]))


def _kubectl_name(raw: Any) -> str:
    return f"{options.NAMED}/{raw['metadata']['name']}"
