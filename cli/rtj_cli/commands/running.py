"""`rtj run`: a trainer on this machine that is restarted and resumes."""

from __future__ import annotations

import asyncio
import logging
import re
import shlex
import signal
from pathlib import Path
from typing import Annotated

import typer
from rtj_api.rules.steering import read_named
from rtj_api.v1alpha1 import OnHang, StackSignal
from rtj_api.validation_fields import ValidationLevel
from rtj_api.wire import KeepRules, Probe, SidecarConfig
from rtj_sidecar.checkpoints.layouts import UnknownLayoutError, layouts_for
from rtj_sidecar.config import Site
from rtj_sidecar.stores.base import StoreProblem
from rtj_sidecar.stores.open import open_store

from rtj_cli.place import PlaceTaken, open_place
from rtj_cli.run import LocalRun
from rtj_cli.telling import fail, note

EPILOG = """
**Exit codes**: the trainer's own (128 + n where signal n killed it) · 0 finished, or the run was
complete already · 2 wrong usage · 70 it cannot go on (the message says why) · 74 finished, but the
last checkpoint did not reach the store · 75 held: no valid checkpoint, the store does not answer,
or the run belongs to another job · 130 stopped before the trainer was started.

**Example**: `rtj run --store file:///data/runs --path out --resume-arg --resume --resume-arg
'$(RTJ_RESUME_CHECKPOINT)' -- python train.py --out out`
"""


def run_command(
    command: Annotated[list[str], typer.Argument(help="The trainer, after `--`.")],
    store: Annotated[
        str,
        typer.Option(help="Where checkpoints are kept: file:///directory or s3://bucket/prefix."),
    ],
    path: Annotated[Path, typer.Option(help="The directory that the trainer saves to.")],
    resume_arg: Annotated[
        list[str] | None,
        typer.Option(
            help="A word appended to the command when it resumes; give it once for each word. "
            "`$(RTJ_RESUME_CHECKPOINT)` and `$(RTJ_RESUME_STEP)` are filled in."
        ),
    ] = None,
    run_id: Annotated[
        str | None,
        typer.Option(
            help="Name of the run in the store [default: local/ and the path's last part]."
        ),
    ] = None,
    layout: Annotated[str, typer.Option(help="Layout of the checkpoints.")] = "auto",
    include: Annotated[
        list[str] | None,
        typer.Option(help="Patterns of checkpoints of no known layout: state_*.json."),
    ] = None,
    probe: Annotated[
        str | None,
        typer.Option(
            help="A command, quoted as for a shell, that tests the restored checkpoint before the "
            "trainer starts, with RTJ_RESUME_CHECKPOINT in its environment. 0: good; else the next "
            "older one is tried."
        ),
    ] = None,
    probe_timeout: Annotated[
        float, typer.Option(min=1, help="Seconds after which the probe is killed: it failed.")
    ] = 600.0,
    require_key: Annotated[
        list[str] | None,
        typer.Option(help="A key that a full checkpoint must hold: optimizer, model.head.*."),
    ] = None,
    level: Annotated[
        ValidationLevel, typer.Option(help="full: new NaN are looked for, too.")
    ] = ValidationLevel.FULL,
    max_restarts: Annotated[
        int, typer.Option(min=0, help="Restarts without anything newly durable in between.")
    ] = 10,
    hang_timeout: Annotated[
        float | None,
        typer.Option(
            min=2,
            help="Seconds without a step, a line or a moving save after which it hangs [default: "
            "from its own pace].",
        ),
    ] = None,
    on_hang: Annotated[
        OnHang, typer.Option(help="Restart: a trainer that hangs is killed and resumes.")
    ] = OnHang.RESTART,
    stack_signal: Annotated[
        StackSignal | None,
        typer.Option(help="For which the trainer has registered faulthandler: see docs/hangs.md."),
    ] = None,
    allow_scratch: Annotated[
        bool, typer.Option("--allow-scratch", help="Start at step 0 where no save is valid.")
    ] = False,
    take_over: Annotated[
        bool,
        typer.Option("--take-over", help="The job that had this run has ended: go on with it."),
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Train on although the run is complete.")
    ] = False,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds the trainer has to end when it is asked to.")
    ] = 30.0,
    drain: Annotated[
        float, typer.Option(min=0, help="Seconds to wait for the last upload at the end.")
    ] = 300.0,
    keep_last: Annotated[
        int | None, typer.Option(min=1, help="Saves kept in the store [default: all].")
    ] = None,
    max_upload_bytes_per_second: Annotated[
        int | None,
        typer.Option(min=65536, help="How fast saves may be sent [default: as fast as it goes]."),
    ] = None,
    thin: Annotated[
        bool,
        typer.Option(help="With --keep-last: older saves survive ever sparser, for a roll-back."),
    ] = True,
    resume_from: Annotated[
        str | None,
        typer.Option(
            help="Begin from this save instead of the newest: its full name, another run, a "
            "directory, a bucket path or a manifest.json of another's trainer. Acts once in a run."
        ),
    ] = None,
    framework: Annotated[
        str, typer.Option(help="Rendezvous variables to set: none, pytorch or jax.")
    ] = "none",
    endpoint: Annotated[
        str | None, typer.Option(help="URL of the S3 server [default: AWS].")
    ] = None,
    region: Annotated[str | None, typer.Option(help="S3 region.")] = None,
    hold: Annotated[
        float, typer.Option(min=0, help="Seconds to wait for a store that does not answer.")
    ] = 600.0,
    port: Annotated[int, typer.Option(help="Port of /status and /metrics [default: any].")] = 0,
    poll: Annotated[float, typer.Option(min=0.05, help="Seconds between looks at the path.")] = 1.0,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Tell every step.")] = False,
) -> None:
    """Run a trainer that is restarted when it crashes and resumes from its newest valid save.

    Every finished save is proved, copied to the store and committed. Run the same command again,
    here or on another machine with the same `--store` and `--run-id`, and it goes on.
    """
    path = path.absolute()
    try:
        layouts_for(layout=layout, include=include or ())
        resume_from = _beginning(resume_from)
        open_store(store, endpoint=endpoint, region=region)
        path.mkdir(parents=True, exist_ok=True)
        place = open_place(path)
    except (UnknownLayoutError, StoreProblem, ValueError) as error:
        raise fail(str(error)) from None
    except PlaceTaken as error:
        raise fail(str(error), 75) from None
    except OSError as error:
        raise fail(f"--path {path}: {error.strerror}") from None
    logging.basicConfig(
        filename=None if verbose else place.root / "agent.log",
        level=logging.INFO,
        format="%(asctime)s %(name)s %(message)s",
    )
    name = run_id or f"local/{re.sub(r'[^A-Za-z0-9._-]', '-', path.name) or 'run'}"
    config = SidecarConfig(
        cluster_uid="local",
        job_uid=place.job_uid(),
        namespace="local",
        job=name.rpartition("/")[2],
        rank=0,
        made_in=1,
        framework=framework,
        procs_per_replica=1,
        run_id=name,
        path=str(path),
        layout=layout,
        include=include or [],
        store_url=store,
        store_endpoint=endpoint,
        store_region=region,
        resume_args=resume_arg or [],
        drain_seconds=drain,
        trainer_grace_seconds=grace,
        hang_timeout_seconds=hang_timeout,
        restarts_hung=on_hang is OnHang.RESTART,
        stack_signal=signal.Signals[stack_signal].value if stack_signal else None,
        mirror="never",
        keep_last=keep_last,
        keep=KeepRules(thin=thin),
        max_upload_bytes_per_second=max_upload_bytes_per_second,
        poll_seconds=poll,
        status_port=port,
        validation_level=level,
        required_keys=require_key or [],
    )
    site = Site(
        config=config,
        pod_uid="local",
        pod_name="local",
        root=place.root,
        directive=place.directive,
        bind="127.0.0.1",
        port=port,
    )
    local = LocalRun(
        site=site,
        place=place,
        command=command,
        say=lambda text: note.print(f"rtj: {text}", style="cyan", markup=False),
        max_restarts=max_restarts,
        allow_scratch=allow_scratch,
        take_over=take_over,
        again=again,
        hold_seconds=hold,
        probe=Probe(command=shlex.split(probe), timeout_seconds=probe_timeout) if probe else None,
        resume_from=resume_from,
    )
    raise typer.Exit(asyncio.run(local.run()))


def _beginning(value: str | None) -> str | None:
    """As the sidecar reads it; a path that is there may be given as one gives paths in a shell."""
    if value is None:
        return None
    if value.startswith((".", "~")):
        value = str(Path(value).expanduser().resolve())
    read_named(value)
    return value
