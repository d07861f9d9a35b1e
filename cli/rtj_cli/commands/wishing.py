"""`rtj suspend|resume|restart|allow-scratch|take-over|bisect`: what changes a job.

Each says what will happen and how to watch it, and what the operator answered. Must never report a
wish as done that the operator refused.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rtj_api import contract
from rtj_api.wire import Request, RequestAction

from rtj_cli import options
from rtj_cli.cluster import JOBS, Cluster
from rtj_cli.commands.asking import asked, look
from rtj_cli.jobs import Seen
from rtj_cli.telling import Code, fail, say

ANSWER_SECONDS = 15.0
LOOK_SECONDS = 0.5

NoWait = Annotated[
    bool, typer.Option("--no-wait", help="Do not wait for the operator's answer (15 s at most).")
]


def suspend_command(
    job: options.Job,
    namespace: options.Namespace = None,
    context: options.KubeContext = None,
    kubeconfig: options.Kubeconfig = None,
) -> None:
    """Stop training after the next save and free the GPUs. Nothing is lost.

    `spec.suspendPolicy` says how long that save is waited for.
    """
    with asked(namespace, context, kubeconfig) as cluster:
        found = _living(look(cluster, job))
        if found.is_suspended:
            say(f"{found.full_name} is suspended already, or about to be")
            return
        _patch(cluster, found, {"spec": {"suspend": True}})
        say(
            f"{found.full_name} saves, ends its trainers and frees its pods; `rtj resume "
            f"{found.full_name}` goes on. To watch: rtj watch {found.full_name}, or to wait: "
            f"rtj wait {found.full_name} --for Suspended"
        )


def resume_command(
    job: options.Job,
    begin: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="STEP|SAVE",
            help="From this save instead of the newest: its name, or a step that one was made at. "
            "A job that runs is restarted from it.",
        ),
    ] = None,
    no_wait: NoWait = False,
    namespace: options.Namespace = None,
    context: options.KubeContext = None,
    kubeconfig: options.Kubeconfig = None,
) -> None:
    """Let a suspended job go on from its newest save, or any job from a save that is named."""
    with asked(namespace, context, kubeconfig) as cluster:
        found = _living(look(cluster, job))
        patch: dict[str, Any] = {"spec": {"suspend": False}} if found.is_suspended else {}
        request = None
        if begin is not None:
            save = _save_named(found, begin, namespace, context, kubeconfig)
            request = _request(RequestAction.RESUME_FROM, save=save)
            patch |= _annotated(request)
        if not patch:
            say(
                f"{found.full_name} is not suspended; --from STEP goes back to a save, `rtj "
                f"restart {found.full_name}` starts its trainers anew"
            )
            return
        _patch(cluster, found, patch)
        at = "its newest save" if request is None else str(request.save)
        say(f"{found.full_name} goes on from {at}; to watch: rtj watch {found.full_name}")
        _answered(cluster, found, request, no_wait=no_wait)


def restart_command(
    job: options.Job,
    no_wait: NoWait = False,
    namespace: options.Namespace = None,
    context: options.KubeContext = None,
    kubeconfig: options.Kubeconfig = None,
) -> None:
    """Start all trainers anew from the newest save; it uses no restart of the budget.

    A job that is held for an existing run goes on with it.
    """
    what = "starts its trainers anew from the newest save"
    _wish(job, RequestAction.RESTART, what, no_wait, (namespace, context, kubeconfig))


def allow_scratch_command(
    job: options.Job,
    no_wait: NoWait = False,
    namespace: options.Namespace = None,
    context: options.KubeContext = None,
    kubeconfig: options.Kubeconfig = None,
) -> None:
    """Let the next start be from step 0 if no save can be used. The saves of before stay.

    It is the way out of `NoValidCheckpoint`, and of `RunExists` where a new line is wanted.
    """
    what = "may begin at step 0 at its next start, if no save can be used"
    _wish(job, RequestAction.ALLOW_SCRATCH, what, no_wait, (namespace, context, kubeconfig))


def take_over_command(
    job: options.Job,
    no_wait: NoWait = False,
    namespace: options.Namespace = None,
    context: options.KubeContext = None,
    kubeconfig: options.Kubeconfig = None,
) -> None:
    """Let a job that is held for `RunInUse` take the run from the job that holds it.

    Only if that one is certainly gone: two jobs that train one run would undo each other's work.
    """
    what = "takes the run over from its last holder"
    _wish(job, RequestAction.TAKE_OVER, what, no_wait, (namespace, context, kubeconfig))


def bisect_command(
    job: options.Job,
    no_wait: NoWait = False,
    namespace: options.Namespace = None,
    context: options.KubeContext = None,
    kubeconfig: options.Kubeconfig = None,
) -> None:
    """Find the newest save from which training gets further, by trying half of them each time."""
    what = "looks for the newest save that trains on"
    _wish(job, RequestAction.BISECT, what, no_wait, (namespace, context, kubeconfig))


def _wish(
    name: str,
    action: RequestAction,
    what: str,
    no_wait: bool,
    where: tuple[str | None, str | None, str | None],
) -> None:
    with asked(*where) as cluster:
        found = _living(look(cluster, name))
        request = _request(action)
        _patch(cluster, found, _annotated(request))
        say(f"{found.full_name} {what}; to watch: rtj watch {found.full_name}")
        _answered(cluster, found, request, no_wait=no_wait)


def _living(job: Seen) -> Seen:
    if job.status.is_terminal:
        raise fail(
            f"{job.full_name} has ended ({job.reason}): make a new job with checkpoint.runID: "
            f"{job.run_id}, which goes on from its saves",
            Code.REFUSED,
        )
    return job


def _request(action: RequestAction, *, save: str | None = None) -> Request:
    return Request(id=f"rtj-{secrets.token_hex(4)}", action=action, save=save)


def _annotated(request: Request) -> dict[str, Any]:
    text = json.dumps(request.dump())
    return {"metadata": {"annotations": {contract.ANNOTATION_REQUEST: text}}}


def _patch(cluster: Cluster, job: Seen, patch: Mapping[str, Any]) -> None:
    cluster.patch(JOBS, job.name, namespace=job.namespace, patch=patch)


def _answered(cluster: Cluster, job: Seen, request: Request | None, *, no_wait: bool) -> None:
    """Tells what the operator said to this very request; ends the command if it refused."""
    if request is None or no_wait:
        return
    until = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < until:
        last = look(cluster, job.full_name).status.last_request
        if last is not None and last.id == request.id:
            if last.result.startswith("refused"):
                raise fail(f"the operator has {last.result}", Code.REFUSED)
            say(f"the operator: {last.result}")
            return
        time.sleep(LOOK_SECONDS)
    say(f"the operator has not answered yet: rtj why {job.full_name}", style="yellow")


def _save_named(
    job: Seen, begin: str, namespace: str | None, context: str | None, kubeconfig: str | None
) -> str:
    """A step becomes the name of the newest save made there: of status, else of the store."""
    if not begin.isdigit():
        return begin
    step, saves = int(begin), job.status.checkpoint
    if saves.last_durable_step == step and saves.last_durable_name is not None:
        return saves.last_durable_name
    resume = job.status.resume
    if resume is not None and resume.step == step and resume.name is not None:
        return resume.name
    from rtj_cli.commands.checkpoints import reached_run
    from rtj_cli.saves import listed

    where = (namespace, context, kubeconfig)
    with reached_run(job.full_name, None, None, None, *where) as place:
        rows = [row for row in listed(place.run.history()) if row["files"] is not None]
    names = [row["name"] for row in rows if row["step"] == step and row["state"] == "valid"]
    if names:
        return str(names[0])
    near = sorted(
        {row["step"] for row in rows if row["step"] is not None and row["state"] == "valid"},
        key=lambda found: abs(found - step),
    )
    some = ", ".join(map(str, sorted(near[:6]))) or "none"
    raise fail(f"no valid save at step {step}; near it: {some}", Code.NOT_FOUND)
