"""`rtj wait` and `rtj watch`: until something holds, and a live screen."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from rtj_cli import options
from rtj_cli.cluster import Cluster, ClusterProblem
from rtj_cli.commands.asking import asked, look, now, pods_of
from rtj_cli.jobs import Seen
from rtj_cli.telling import Code, fail, harmless, say, tell
from rtj_cli.views import screen
from rtj_cli.views.words import span
from rtj_cli.waiting import FORMS, Goal, Outcome, goal_of, news, outcome

LOST_SECONDS = 60.0  # for which an API server that does not answer is waited for

Every = Annotated[float, typer.Option(min=0.2, help="Seconds between two looks.")]


def wait_command(
    job: options.Job,
    goal: Annotated[str, typer.Option("--for", metavar="GOAL", help=f"{FORMS}.")] = "Complete",
    timeout: Annotated[
        float | None, typer.Option(min=0, help="Seconds [default: without end].")
    ] = None,
    every: Every = 2.0,
    namespace: options.Namespace = None,
    context: options.KubeContext = None,
    kubeconfig: options.Kubeconfig = None,
) -> None:
    """Wait until a job is where you want it. Each change on the way is told on stderr.

    Exit code 0: it is there; 6: not in time; 7: it cannot come any more (the job failed while
    `Complete` was waited for); 3: the job is gone.
    """
    try:
        wanted = goal_of(goal)
    except ValueError as error:
        raise fail(str(error), Code.USAGE) from None
    with asked(namespace, context, kubeconfig) as cluster:
        _wait(cluster, job, wanted, timeout=timeout, every=every)


def _wait(cluster: Cluster, name: str, goal: Goal, *, timeout: float | None, every: float) -> None:
    began, told = time.monotonic(), ""
    while True:
        found = _patient_look(cluster, name, every=every)
        line = news(found)
        if line != told:
            say(f"{found.full_name}: {line}")
            told = line
        match outcome(found, goal):
            case Outcome.THERE:
                return
            case Outcome.GONE:
                raise fail(
                    f"{found.full_name} has ended ({found.reason}) without {goal}: rtj why "
                    f"{found.full_name}",
                    Code.OTHERWISE,
                )
            case Outcome.NOT_YET:
                passed = time.monotonic() - began
                if timeout is not None and passed + every > timeout:
                    raise fail(
                        f"{found.full_name}: no {goal} within {span(timeout)}: rtj why "
                        f"{found.full_name}",
                        Code.LATE,
                    )
        time.sleep(every)


def _patient_look(cluster: Cluster, name: str, *, every: float) -> Seen:
    """An API server that is away for a while is no answer; a job that is gone is one."""
    until = time.monotonic() + LOST_SECONDS
    while True:
        try:
            return look(cluster, name)
        except ClusterProblem as problem:
            is_lasting = problem.code != Code.UNREACHABLE or problem.is_forbidden
            if is_lasting or time.monotonic() > until:
                raise
            time.sleep(every)


def watch_command(
    job: options.Job,
    every: Every = 2.0,
    namespace: options.Namespace = None,
    context: options.KubeContext = None,
    kubeconfig: options.Kubeconfig = None,
) -> None:
    """A live screen of one job: what it does and why, its ranks, its attempts. Ends with the job.

    Where stdout is no terminal: one line at each change.
    """
    with asked(namespace, context, kubeconfig) as cluster:
        if not sys.stdout.isatty():
            _lines(cluster, job, every=every)
            return
        with Live(console=Console(), auto_refresh=False, screen=False) as live:
            while True:
                found = _patient_look(cluster, job, every=every)
                pods = pods_of(cluster, found)
                told = screen.lines(found, pods=pods, now=now())
                live.update(Group(*(Text(harmless(line)) for line in told)), refresh=True)
                if found.status.is_terminal:
                    return
                time.sleep(every)


def _lines(cluster: Cluster, name: str, *, every: float) -> None:
    told = ""
    while True:
        found = _patient_look(cluster, name, every=every)
        line = news(found)
        if line != told:
            tell([line])
            told = line
        if found.status.is_terminal:
            return
        time.sleep(every)
