"""`python -m rtj_operator`: the operator, put together and started.

It runs in a pod, or outside of the cluster with KUBECONFIG. Everything is configured by
environment variables. Must never hold logic beyond the order of start and end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import platform
import signal
import socket
import sys
import time
from collections.abc import Coroutine
from importlib import metadata
from typing import Any, TypeVar

from rtj_api import contract
from rtj_api.version import RELEASE

from rtj_operator import handlers
from rtj_operator.core.decide import decide
from rtj_operator.core.observed import JobKey
from rtj_operator.core.pod_facts import PodSettings
from rtj_operator.settings import VARIABLES, Settings, SettingsError, settings_from
from rtj_operator.shell.api import ApiError
from rtj_operator.shell.app import NAMESPACED, RESOURCES, App
from rtj_operator.shell.cluster import KubeCluster, load_configuration
from rtj_operator.shell.health import Pulse, health_app, metrics_app, serve
from rtj_operator.shell.lease import Election
from rtj_operator.shell.logs import log_json
from rtj_operator.shell.metrics import OperatorMetrics
from rtj_operator.shell.queue import KeyQueue
from rtj_operator.shell.rights import REMEDY, Rights

log = logging.getLogger("rtj_operator")

EXIT_BAD_SETTINGS = 2
START_PATIENCE_SECONDS = 60.0
FIRST_LOOK_SECONDS = 2.0
T = TypeVar("T")


def help_text() -> str:
    width = max(len(name) for name, _, _ in VARIABLES)
    rows = [f"  {name:<{width}}  {text} Default: {default}." for name, default, text in VARIABLES]
    return "environment:\n" + "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m rtj_operator",
        description="Runs training jobs that survive anything, on Kubernetes.",
        epilog=help_text(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=RELEASE)
    parser.parse_args()
    try:
        settings = settings_from(os.environ, hostname=socket.gethostname())
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(EXIT_BAD_SETTINGS) from error
    log_json(level=settings.log_level)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run(settings))


async def run(settings: Settings) -> None:
    """Until SIGTERM, until a watch ends for good, or until another replica has the Lease (then the
    kubelet starts us anew)."""
    metrics = OperatorMetrics()
    metrics.build(version=RELEASE, python=platform.python_version(), kopf=metadata.version("kopf"))
    cluster = KubeCluster(
        await load_configuration(),
        user_agent=f"resumable-training-operator/{RELEASE}",
        namespaces=settings.namespaces,
        on_request=metrics.requested,
        on_refused=Rights(metrics.refused),
    )
    pulse = Pulse(resources=RESOURCES if settings.reads_nodes else NAMESPACED)
    queue: KeyQueue[JobKey] = KeyQueue(
        on_add=metrics.queue_adds.inc, on_take=metrics.queue_seconds.observe
    )
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(cluster.close)
        servers = contextlib.AsyncExitStack()
        stack.push_async_callback(servers.aclose)
        for web, port in (
            (health_app(pulse=pulse, queue=queue), settings.health_port),
            (metrics_app(metrics.registry), settings.metrics_port),
        ):
            runner = await serve(web, port=port)
            servers.push_async_callback(runner.cleanup)
        contact = first_contact(cluster, known=settings.cluster_uid, pulse=pulse)
        cluster_uid = await unless_asked_to_end(contact, name="first contact")
        if cluster_uid is None:
            return
        election = election_of(settings, cluster=cluster)
        pulse.standby = election.silent_seconds if election is not None else None
        if election is not None:
            pulse.lease_trouble = lambda: election.trouble
            if not await wins(election):
                return
            stack.push_async_callback(election.give_back)
        pulse.begin()
        if not settings.reads_nodes:
            log.warning("NodeLossDetection=Limited", extra={"why": "it may not read nodes"})
        app = App(
            cluster,
            login=lambda: cluster.watch_session(on_watch=app.watch_answered),
            pods=PodSettings(
                cluster_uid=cluster_uid,
                sidecar_image=settings.sidecar_image,
                sidecar_image_pull_policy=settings.sidecar_pull_policy,
                sidecar_resources=settings.sidecar_resources,
            ),
            decide=decide,
            metrics=metrics,
            pulse=pulse,
            instance=settings.instance,
            queue=queue,
            reads_nodes=settings.reads_nodes,
            sees_all_jobs=not settings.namespaces,
            namespace=settings.own_namespace,
            node_ledger=settings.node_ledger,
        )
        metrics.leader.set(1)
        metrics.node_loss_detection.set(settings.reads_nodes)
        await work(app, settings=settings, pulse=pulse, servers=servers, election=election)


def election_of(settings: Settings, *, cluster: KubeCluster) -> Election | None:
    """None: this process works whatever others do."""
    if settings.lease is None or settings.own_namespace is None:
        return None
    return Election(
        leases=cluster,
        namespace=settings.own_namespace,
        name=settings.lease,
        # A container that is started anew in its pod is another process, with nothing in memory.
        holder=f"{settings.instance}_{os.urandom(4).hex()}",
        duration=settings.lease_seconds,
    )


async def wins(election: Election) -> bool:
    """Whether it got the Lease before it was asked to end."""

    async def won() -> bool:
        await election.won()
        return True

    return await unless_asked_to_end(won(), name="lease") is not None


async def unless_asked_to_end(work: Coroutine[Any, Any, T], *, name: str) -> T | None:
    """What `work` gives; None where the process was asked to end first. Raises what it raises."""
    already = asyncio.Event()
    already.set()
    asked = asyncio.create_task(asked_to_end(already), name="signals")
    waiting = asyncio.create_task(work, name=name)
    await asyncio.wait({asked, waiting}, return_when=asyncio.FIRST_COMPLETED)
    done = waiting.done()
    for task in (asked, waiting):
        task.cancel()
    await asyncio.gather(asked, waiting, return_exceptions=True)
    return waiting.result() if done else None


async def first_contact(cluster: KubeCluster, *, known: str | None, pulse: Pulse) -> str:
    """UID of the cluster, once it answers and knows our API. `known`: what it was said to be.

    Raises TimeoutError where the API server or the CRD is not there in time. For a permission it
    waits as long as it takes: a restart would not give it.
    """
    end = time.monotonic() + START_PATIENCE_SECONDS
    while True:
        try:
            uid = known or await cluster.cluster_uid()
            version = await cluster.server_version()
            await cluster.list_jobs()
        except ApiError as error:
            remedy = {
                401: "Give the operator valid credentials.",
                403: REMEDY,
                404: f"Install the CRD of {contract.PLURAL}.{contract.GROUP} first.",
            }.get(error.status, "Waiting for the API server.")
            log.warning("cannot start yet", extra={"why": str(error), "remedy": remedy})
            pulse.blocked = f"cannot start yet: {error} {remedy}"
            if error.status != 403 and time.monotonic() > end:
                raise TimeoutError(pulse.blocked) from error
            await asyncio.sleep(FIRST_LOOK_SECONDS)
        else:
            pulse.blocked = None
            log.info("cluster", extra={"uid": uid, "version": version})
            return uid


async def work(
    app: App,
    *,
    settings: Settings,
    pulse: Pulse,
    servers: contextlib.AsyncExitStack,
    election: Election | None,
) -> None:
    stop, ready = asyncio.Event(), pulse.ready
    watching = asyncio.create_task(
        handlers.watch(
            app,
            namespaces=settings.namespaces,
            stop=stop,
            ready=ready,
            with_nodes=settings.reads_nodes,
        ),
        name="watches",
    )
    working = asyncio.create_task(app.run(workers=settings.workers), name="loop")
    asked = asyncio.create_task(asked_to_end(ready), name="signals")
    ours = [working, asked]
    if election is not None:
        ours.append(asyncio.create_task(election.lost(), name="lease"))
    try:
        await asyncio.wait({watching, *ours}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        log.info("ending")
        for task in ours:
            task.cancel()
        # kopf waits for every task of the loop before it ends, so ours have to go first.
        ended = await asyncio.gather(*ours, return_exceptions=True)
        await servers.aclose()
        stop.set()
        watched = await asyncio.gather(watching, return_exceptions=True)
    for result in (*ended, *watched):
        if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
            raise result


async def asked_to_end(ready: asyncio.Event) -> None:
    """SIGTERM or SIGINT came. Until the watches are ready kopf listens to them itself."""
    await ready.wait()
    loop, came = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, came.set)
    await came.wait()


if __name__ == "__main__":
    main()
