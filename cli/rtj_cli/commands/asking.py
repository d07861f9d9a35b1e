"""From the options of a command to a cluster, and from what goes wrong there to words and a code.

Must stay light: these commands answer at once, so nothing of the stores is imported here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rtj_api.version import RELEASE

from rtj_cli.cluster import Cluster, ClusterProblem, Raw
from rtj_cli.jobs import Seen, UnreadableJob, seen
from rtj_cli.skew import of_sidecars, warning
from rtj_cli.telling import Code, fail, say


@contextmanager
def asked(namespace: str | None, context: str | None, kubeconfig: str | None) -> Iterator[Cluster]:
    """Ends the command with one line of words, never with a trace."""
    try:
        yield Cluster(namespace=namespace, context=context, kubeconfig=kubeconfig)
    except ClusterProblem as problem:
        raise fail(str(problem), problem.code) from None
    except UnreadableJob as problem:
        raise fail(str(problem), Code.REFUSED) from None
    except KeyboardInterrupt:
        raise fail("interrupted", Code.INTERRUPTED) from None


def look(cluster: Cluster, name: str) -> Seen:
    """Raises ClusterProblem, UnreadableJob."""
    return seen(cluster.job(name))


def pods_of(cluster: Cluster, job: Seen) -> list[Raw]:
    """None where they may not be read: said, and the command goes on with less."""
    try:
        pods = cluster.pods(job=job.name, namespace=job.namespace)
        version = of_sidecars(pods)
        told = None if version is None else warning(RELEASE, {"the operator's sidecar": version})
        if told is not None:
            say(told, style="yellow")
        return pods
    except ClusterProblem as problem:
        if not problem.is_forbidden:
            raise
        say(f"without its pods: {problem}", style="yellow")
        return []


def now() -> float:
    """Unix seconds."""
    return time.time()
