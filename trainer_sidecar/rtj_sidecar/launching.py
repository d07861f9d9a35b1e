"""What a trainer is told at its start: its place in the gang, and what to resume from.

Must never name a save that this attempt has not restored.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from rtj_api import contract
from rtj_api.rules.rendezvous import environment
from rtj_api.wire import Batches, Directive, Go, Resume

from rtj_sidecar.station import Station
from rtj_sidecar.trainer.supervisor_link import write_whole


def go_message(at: Station, directive: Directive, resume: Resume | None) -> Go:
    """The variables and arguments with which its trainer starts."""
    config = at.site.config
    path = at.journal.entry.resume_path
    resuming = resume is not None and not resume.scratch and path is not None
    step = "" if resume is None or resume.step is None or not resuming else str(resume.step)
    told = {
        contract.ENV_ATTEMPT: str(directive.attempt),
        contract.ENV_RANK: str(directive.rank),
        contract.ENV_WORLD_SIZE: str(directive.world_size),
        contract.ENV_RESUME_STEP: step,
        contract.ENV_RESUME_CHECKPOINT: path if resuming and path else "",
        contract.ENV_CHECKPOINT_DIR: config.path,
        contract.ENV_PROGRESS_FILE: str(at.link.run / contract.FILE_PROGRESS),
        contract.ENV_STOP_FILE: str(at.link.run / contract.FILE_STOP_WISH),
    }
    if directive.interval_seconds is not None:
        told[contract.ENV_CHECKPOINT_INTERVAL] = f"{directive.interval_seconds:g}"
        told[contract.ENV_CHECKPOINT_INTERVAL_FILE] = str(interval_file(at))
    told |= _batches(directive.batches)
    arguments = [_expand(word, told) for word in config.resume_args] if resuming else []
    told[contract.ENV_RESUME_ARGS] = shlex.join(arguments)
    rendezvous = environment(
        config.framework,
        rank=directive.rank,
        world_size=directive.world_size,
        procs_per_replica=config.procs_per_replica,
        coordinator=directive.coordinator or "127.0.0.1",
        attempt=directive.attempt,
        port=directive.rendezvous_port,
        run_id=config.run_id,
    )
    return Go(
        attempt=directive.attempt,
        env={**rendezvous, **told},
        extra_args=arguments,
    )


def _batches(said: Batches | None) -> dict[str, str]:
    """What an elastic gang's trainer needs so that a step takes the same samples at any size."""
    if said is None:
        return {}
    told = {contract.ENV_LEARNING_RATE_SCALE: f"{said.learning_rate_scale:.9g}"}
    if said.accumulation is not None and said.global_batch is not None:
        told[contract.ENV_ACCUMULATION] = str(said.accumulation)
        told[contract.ENV_GLOBAL_BATCH] = str(said.global_batch)
    return told


def interval_file(at: Station) -> Path:
    return at.link.run / contract.FILE_CHECKPOINT_INTERVAL


def tell_interval(at: Station, seconds: float | None) -> None:
    """Seconds between saves, for a trainer that looks at the file. Raises OSError."""
    if seconds is not None:
        write_whole(interval_file(at), f"{seconds:g}\n")


def _expand(word: str, told: dict[str, str]) -> str:
    for name, value in told.items():
        word = word.replace(f"$({name})", value)
    return word
