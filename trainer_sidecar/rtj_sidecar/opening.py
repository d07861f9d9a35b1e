"""The run that a pod's configuration names: its store, and by which rules its saves are whole.

Must never leave it untold that no save outlives the pod.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from rtj_api.reasons import Reason
from rtj_api.wire import Directive, SidecarConfig

from rtj_sidecar.checkpoints.layouts import layouts_for
from rtj_sidecar.checkpoints.needs import Gang
from rtj_sidecar.checkpoints.types import Expectations, GateResult, PartFiles
from rtj_sidecar.report import Reporter
from rtj_sidecar.runs.context import About
from rtj_sidecar.runs.run import Run
from rtj_sidecar.station import Station
from rtj_sidecar.stores.base import Store, StoreProblem
from rtj_sidecar.stores.open import kept_in, open_store
from rtj_sidecar.stores.pace import Pace


def open_run(config: SidecarConfig, *, reporter: Reporter) -> Run | None:
    """None where none can be opened; why ends in the report."""
    loop = asyncio.get_running_loop()

    def waits(problem: StoreProblem | None) -> None:
        # An upload survives minutes of outage by itself; that is no reason not to tell of it.
        tell = partial(reporter.heal, "transfer")
        if problem is not None:
            tell = partial(reporter.degrade, "transfer", problem.reason, problem.message)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
            loop.call_soon_threadsafe(tell)

    if config.store_url is None and not config.keeps_in_directory:
        reporter.degrade(
            "store",
            Reason.INVALID_SPEC,
            "checkpoint.store.url is not set: no save outlives this pod. Set it to "
            "s3://bucket/prefix or file:///directory",
            retrying=False,
        )
        return None
    opened = partial(
        open_store,
        endpoint=config.store_endpoint,
        region=config.store_region,
        ca_file=config.store_ca_file,
        credentials_dir=(
            Path(config.store_credentials_dir) if config.store_credentials_dir else None
        ),
        pace=(
            Pace(config.max_upload_bytes_per_second)
            if config.max_upload_bytes_per_second is not None
            else None
        ),
    )
    try:
        store = (
            opened(config.store_url, late=True, on_wait=waits)
            if config.store_url is not None
            else kept_in(Path(config.path))
        )
    except StoreProblem as problem:
        reporter.degrade("store", problem.reason, problem.message, retrying=False)
        return None
    return Run(
        store=store,
        run_id=config.run_id,
        cluster_uid=config.cluster_uid,
        job_uid=config.job_uid,
        rank=config.rank,
        union_gate=partial(union_gate, procs=procs_of(config)),
        about=About(
            namespace=config.namespace,
            job=config.job,
            image=config.image,
            command=tuple(config.command),
            required=tuple(config.required_keys),
        ),
        open_place=partial(_elsewhere, opened, config),
    )


def _elsewhere(opened: Callable[..., Store], config: SidecarConfig, url: str) -> Store:
    """Another place to copy from: a server's address is that of stores of the same kind only."""
    same = urlsplit(url).scheme == urlsplit(config.store_url or "").scheme
    return opened(url) if same else opened(url, endpoint=None, region=None)


def union_gate(
    layout: str, parts: Sequence[PartFiles], world_size: int | None, *, procs: int = 1
) -> GateResult:
    """Whether the ranks' parts together are a whole save, by the layout's own rules. `world_size`:
    pods that made it, None where nobody knows."""
    chosen = layouts_for(layout=layout)[0]
    size = None if world_size is None else world_size * procs
    return chosen.union_gate(parts=parts, expect=Expectations(world_size=size))


def expectations(config: SidecarConfig, directive: Directive, *, world: int | None) -> Expectations:
    """How much of a save this directory holds: all of it, or one rank's share. `world`: pods of
    the attempt whose trainer makes or made what is new here, None where none was started yet."""
    alone = directive.world_size == 1 or config.shared_directory
    size = directive.world_size if world is None else world
    return Expectations(world_size=size * procs_of(config), whole=alone, earlier=world is None)


def world_of_new(station: Station, directive: Directive) -> int | None:
    """Pods of the attempt that was told to go last in this pod: until the next go, what is new is
    of its making. None where no trainer was started here yet."""
    went = station.link.told_to_go()
    if went == 0:
        return None
    told = station.journal.entry.world_of_go if went < directive.attempt else None
    return directive.world_size if told is None else told


def gang_of(config: SidecarConfig, directive: Directive) -> Gang | None:
    """Who loads what, for certain; None where processes are only guessed, or ranks have moved."""
    if not config.procs_stated or directive.rank != config.rank or config.shared_directory:
        return None
    return Gang(
        rank=directive.rank, world_size=directive.world_size, procs=config.procs_per_replica
    )


def processes_of(config: SidecarConfig, directive: Directive) -> int | None:
    """Trainer processes of the whole gang, whoever loads what; None where they are only guessed."""
    return directive.world_size * config.procs_per_replica if config.procs_stated else None


def take_place(station: Station, directive: Directive) -> None:
    """What this pod's directory and its view of the run have to know of the attempt."""
    config = station.site.config
    world = world_of_new(station, directive)
    station.directory.expect = expectations(config, directive, world=world)
    station.directory.here_before = frozenset(station.journal.entry.here_before)
    station.directory.place = f"{directive.rank}/{directive.world_size}"
    if station.run is not None:
        station.run.suiting.gang = gang_of(config, directive)
        station.run.suiting.processes = processes_of(config, directive)


def procs_of(config: SidecarConfig) -> int:
    """Trainer processes a pod has at least: where only GPUs were counted, one may use them all."""
    return config.procs_per_replica if config.procs_stated else 1
