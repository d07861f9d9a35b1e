"""`rtj logs` and `rtj top`: what the ranks say."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated

import typer
from rtj_api import contract

from rtj_cli import options
from rtj_cli.cluster import Cluster, ClusterProblem, Raw
from rtj_cli.commands.asking import asked, look, now
from rtj_cli.following_logs import followed
from rtj_cli.jobs import Seen
from rtj_cli.merging import Line, Source, attempt_at, lines_of, merged, prefixed, sources
from rtj_cli.telling import Code, Output, fail, say, show
from rtj_cli.views import ranks

AT_ONCE = 16  # kubectl processes


def logs_command(
    job: options.Job,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on as lines come, also of pods that are new.")
    ] = False,
    rank: Annotated[int | None, typer.Option(min=0, help="Only this rank.")] = None,
    attempt: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Only this attempt; one whose pods are gone is read from the store, where its "
            "last lines are.",
        ),
    ] = None,
    tail: Annotated[int | None, typer.Option(min=0, help="So many lines of each rank.")] = None,
    since: Annotated[str | None, typer.Option(help="Not older than: 30s, 10m, 2h.")] = None,
    container: Annotated[
        str | None, typer.Option("--container", "-c", help="Not the trainer's: rtj-sidecar.")
    ] = None,
    timestamps: Annotated[bool, typer.Option(help="Each line with its time.")] = False,
    endpoint: options.Endpoint = None,
    region: options.Region = None,
    namespace: options.Namespace = None,
    context: options.KubeContext = None,
    kubeconfig: options.Kubeconfig = None,
) -> None:
    """Print the logs of all ranks as one, by time: `[rank #attempt] line`.

    The attempt is the one that ran at the line's time. A container's log is as long as the kubelet
    keeps it.
    """
    with asked(namespace, context, kubeconfig) as cluster:
        found = look(cluster, job)
        printer = _Printer(found, wanted=attempt, times=timestamps)
        if follow:
            told = partial(_now, cluster, found, rank, container)
            for line in followed(cluster, namespace=found.namespace, sources=told, since=since):
                printer.print(line)
            return
        pods = cluster.pods(job=found.name, namespace=found.namespace)
        read = sources(pods, rank=rank, container=container)
        words = [f"--tail={tail}"] if tail is not None else []
        words += [f"--since={since}"] if since else []
        for line in merged(_read(cluster, found, read, words)):
            printer.print(line)
        wanted = range(found.replicas) if rank is None else (rank,)
        lacking = [each for each in wanted if each not in printer.ranks]
        if container is not None:
            if not printer.ranks:
                say(f"{found.full_name} has no line in {container}")
        elif lacking and (attempt is not None or not printer.ranks):
            _lacking(cluster, found, printer, lacking, endpoint, region)


class _Printer:
    """Prints the lines of the attempt that is wanted."""

    def __init__(self, job: Seen, *, wanted: int | None, times: bool) -> None:
        self._job, self._wanted, self._times = job, wanted, times
        self.ranks: set[int] = set()
        self.attempt = wanted if wanted is not None else job.status.attempt

    def print(self, line: Line) -> None:
        attempt = attempt_at(line.at, self._job.status.attempts)
        if self._wanted is not None and attempt != self._wanted:
            return
        typer.echo(prefixed(line, attempt=attempt, ranks=self._job.replicas, times=self._times))
        self.ranks.add(line.rank)

    def print_kept(self, rank: int, text: str) -> None:
        """A line of the store, which has no time."""
        line = Line(0.0, rank, text)
        typer.echo(prefixed(line, attempt=self.attempt, ranks=self._job.replicas))
        self.ranks.add(rank)


def _now(
    cluster: Cluster, job: Seen, rank: int | None, container: str | None
) -> tuple[list[Source], bool]:
    has_ended = look(cluster, job.full_name).status.is_terminal
    pods = cluster.pods(job=job.name, namespace=job.namespace)
    begun = [pod for pod in pods if (pod.get("status") or {}).get("phase") != "Pending"]
    return sources(begun, rank=rank, container=container), has_ended


def _read(cluster: Cluster, job: Seen, read: list[Source], words: list[str]) -> list[list[Line]]:
    def one(source: Source) -> list[Line]:
        asked_for = ("logs", source.pod, "-c", source.container, "--timestamps", *words)
        try:
            text = cluster.text(*asked_for, namespace=job.namespace)
        except ClusterProblem as problem:
            if problem.is_forbidden:
                raise
            say(f"rank {source.rank}: {problem}", style="yellow")
            return []
        return list(lines_of(text.splitlines(), rank=source.rank))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(one, read))


def _lacking(
    cluster: Cluster,
    job: Seen,
    printer: _Printer,
    lacking: list[int],
    endpoint: str | None,
    region: str | None,
) -> None:
    """The last lines of ranks whose pods are gone, which the sidecars left in the store."""
    from rtj_cli.commands.guarded import guarded
    from rtj_cli.targets import Asked, reached

    told = Asked(
        target=job.full_name,
        endpoint=endpoint,
        region=region,
        context=cluster.context,
        kubeconfig=cluster.kubeconfig,
    )
    names, which = ", ".join(map(str, lacking)), printer.attempt
    say(f"rank {names} of attempt {which}: its pods are gone; their last lines, from the store")
    try:
        with guarded(), reached(told) as place:
            for rank in lacking:
                found = place.store.get(f"{place.run_id}/logs/{which}/{rank}.txt")
                text = "" if found is None else found.data.decode(errors="replace")
                for each in text.splitlines():
                    printer.print_kept(rank, each)
    except typer.Exit:  # said already; what the pods had is printed
        if not printer.ranks:
            raise
    if not printer.ranks:
        raise fail(f"no log of attempt {which} is left, in pods or store", Code.NOT_FOUND)


def top_command(
    job: options.Job,
    namespace: options.Namespace = None,
    context: options.KubeContext = None,
    kubeconfig: options.Kubeconfig = None,
    output: options.Form = Output.TABLE,
) -> None:
    """List the ranks: step, steps a second, saves that are not durable yet and for how long.

    From the sidecars' reports, through the API server, which takes `get` of `pods/proxy`; without
    that right only pods and nodes are listed.
    """
    with asked(namespace, context, kubeconfig) as cluster:
        found = look(cluster, job)
        pods = cluster.pods(job=found.name, namespace=found.namespace)
        at = now()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            heard = list(pool.map(lambda pod: _report(cluster, found, pod), pods))
        refused = next((each for each in heard if isinstance(each, ClusterProblem)), None)
        if refused is not None:
            say(f"without what the sidecars say: {refused}", style="yellow")
        rows = [
            ranks.row(
                pod, None if isinstance(each, ClusterProblem) else ranks.read_report(each), now=at
            )
            for pod, each in zip(pods, heard, strict=True)
        ]
        rows.sort(key=lambda row: (row["rank"] is None, row["rank"] or 0))
        if not rows:
            say(f"{found.full_name} has no pods: rtj why {found.full_name}")
        show(rows, output, columns=ranks.columns(now=at), name=lambda row: str(row["pod"]))


def _report(cluster: Cluster, job: Seen, pod: Raw) -> Raw | ClusterProblem:
    name = pod["metadata"]["name"]
    try:
        return cluster.raw(
            f"/api/v1/namespaces/{job.namespace}/pods/{name}:{ranks.port_of(pod)}/proxy"
            f"{contract.PATH_STATUS}?{contract.QUERY_JOB}={job.raw['metadata']['uid']}"
        )
    except ClusterProblem as problem:
        return problem
