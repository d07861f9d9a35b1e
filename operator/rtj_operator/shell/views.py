"""Raw objects of the API server -> the frozen views that decisions are made from.

Pure: what a field means is settled here once. Must never guess: what a raw object does not say
is None in the view.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from rtj_api import contract, v1alpha1, wire
from rtj_api.reasons import Reason
from rtj_api.status import Status, parse_time

from rtj_operator.core import pod_facts
from rtj_operator.core import pods as manifests
from rtj_operator.core.observed import (
    ContainerEnd,
    ContainerView,
    JobKey,
    JobSpec,
    JobView,
    NodeView,
    PodView,
    SpecProblem,
)
from rtj_operator.core.template import SpecRefused
from rtj_operator.shell.queues import with_queue
from rtj_operator.shell.taints import taints_of

Raw = Mapping[str, Any]

# The garbage collector's own: it stands there until no pod names the job as its owner any more.
ORPHAN = "orphan"
SPARE_NAME = re.compile(r"^.*-s(\d+)-(\d+)-[0-9a-f]{4}$")
POD_NAME = re.compile(r"^.*-(\d+)-(\d+)-[0-9a-f]{4}$")


def job_view(raw: Raw) -> JobView:
    """The job as decisions see it; an unreadable spec gives a `problem` in place of `spec`."""
    meta = raw["metadata"]
    key = JobKey(namespace=meta["namespace"], name=meta["name"])
    spec, problem = _job_spec(raw)
    request, request_error, error_id = _request(meta)
    return JobView(
        key=key,
        uid=meta["uid"],
        resource_version=meta["resourceVersion"],
        generation=int(meta.get("generation") or 0),
        deleting="deletionTimestamp" in meta,
        leaves_pods=ORPHAN in (meta.get("finalizers") or ()),
        spec=spec,
        status=Status.model_validate(raw.get("status") or {}),
        created_at=_time(meta.get("creationTimestamp")),
        managed_elsewhere=_other_manager(raw),
        problem=problem,
        request=request,
        request_error=request_error,
        request_error_id=error_id,
    )


def _other_manager(raw: Raw) -> str | None:
    """Told whatever else the spec holds, and whether or not that can be read."""
    manager = (raw.get("spec") or {}).get("managedBy")
    return None if manager in (None, contract.MANAGER) else str(manager)


def owner_of(raw: Raw) -> pod_facts.Owner:
    meta = raw["metadata"]
    return pod_facts.Owner(namespace=meta["namespace"], name=meta["name"], uid=meta["uid"])


def api_spec(raw: Raw) -> v1alpha1.JobSpec:
    """Raises pydantic.ValidationError."""
    return v1alpha1.JobSpec.model_validate(raw.get("spec") or {})


def _job_spec(raw: Raw) -> tuple[JobSpec | None, SpecProblem | None]:
    try:
        spec = api_spec(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(["spec", *map(str, first["loc"])])
        return None, SpecProblem(
            reason=Reason.INVALID_SPEC, message=f"{where}: {first['msg']}. Correct this field."
        )
    owner = owner_of(raw)
    refusal = manifests.refusal_of(spec, owner=owner)
    if refusal is not None:
        return None, SpecProblem(reason=refusal.reason, message=refusal.message)
    try:
        kind = pod_facts.sharing(spec)
    except SpecRefused as error:
        return None, SpecProblem(reason=error.refusal.reason, message=error.refusal.message)
    store = spec.checkpoint.store
    return JobSpec(
        replicas=spec.replicas,
        run_id=pod_facts.run_id(spec, owner=owner),
        template_hash=manifests.template_hash(spec),
        has_store=store is not None,
        store_url=store.url if store else None,
        store_endpoint=store.endpoint if store else None,
        credentials_secret=store.credentials_secret if store else None,
        shared_directory=pod_facts.is_shared(spec, kind),
        fenced_directory=pod_facts.is_fenced(kind),
        suspend=spec.suspend,
        probe=_probe_of(spec),
        suspend_wait_seconds=spec.suspend_policy.checkpoint_timeout_seconds,
        placement_seconds=spec.recovery.placement_timeout_seconds,
        on_existing_run=spec.checkpoint.on_existing_run,
        take_over=spec.checkpoint.take_over,
        resume_from=spec.checkpoint.resume_from,
        scratch_if_none_valid=(
            spec.checkpoint.on_no_valid == v1alpha1.OnNoValid.START_FROM_SCRATCH
        ),
        obeys_stop=spec.recovery.stop.by != v1alpha1.StopBy.NOTHING,
        on_hang=spec.recovery.hang.on_hang,
        hang_timeout_seconds=spec.recovery.hang.timeout_seconds,
        on_slow=spec.recovery.straggler.on_slow,
        on_divergence=spec.recovery.verify_resume.on_divergence,
        failure_rules=tuple(rule.plain() for rule in spec.recovery.failure_rules),
        interval=spec.checkpoint.interval,
        max_restarts=spec.recovery.max_restarts,
        backoff_initial_seconds=spec.recovery.backoff.initial_seconds,
        backoff_max_seconds=spec.recovery.backoff.max_seconds,
        trainer_grace_seconds=pod_facts.trainer_grace_seconds(spec),
        drain_seconds=spec.sidecar.drain_seconds,
        spares=spec.recovery.spares,
        elastic=pod_facts.elastic(spec),
        avoid_nodes=spec.recovery.avoid_nodes,
        gang_scheduler=spec.scheduling.gang,
        queue=spec.scheduling.queue,
        rank_zero_decides=spec.success.ranks == v1alpha1.SuccessRanks.ZERO,
        target_step=spec.success.target_step,
        active_deadline_seconds=spec.active_deadline_seconds,
        start_deadline_seconds=spec.start_deadline_seconds,
        ttl_seconds_after_finished=spec.ttl_seconds_after_finished,
        warnings=tuple(
            SpecProblem(reason=warning.reason, message=warning.message)
            for warning in manifests.warnings_of(spec)
        ),
    ), None


def _probe_of(spec: v1alpha1.JobSpec) -> wire.Probe | None:
    probe = spec.checkpoint.validation.probe
    if probe is None:
        return None
    return wire.Probe(command=list(probe.command), timeout_seconds=probe.timeout_seconds)


def _request(meta: Raw) -> tuple[wire.Request | None, str | None, str | None]:
    """The wish; or why it cannot be read, and a name for exactly this text."""
    text = (meta.get("annotations") or {}).get(contract.ANNOTATION_REQUEST)
    if text is None:
        return None, None, None
    try:
        return wire.Request.model_validate_json(text), None, None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        actions = ", ".join(wire.RequestAction)
        told = re.search(r'"id"\s*:\s*"([^"]{1,64})"', text)
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        why = (
            f"annotation {contract.ANNOTATION_REQUEST}: {where}: {first['msg']}. It must be JSON "
            f'{{"id": "…", "action": "…"}} with an action of: {actions}.'
        )
        return None, why, f"{told[1] if told else 'unreadable'}!{digest}"


def controller_uid(raw: Raw) -> str | None:
    """UID of the ResumableTrainingJob that controls this pod; None if another thing does."""
    for owner in raw["metadata"].get("ownerReferences") or []:
        ours = owner.get("kind") == contract.KIND
        if (
            owner.get("controller")
            and ours
            and owner["apiVersion"].startswith(f"{contract.GROUP}/")
        ):
            return str(owner["uid"])
    return None


def pod_view(raw: Raw) -> PodView | None:
    """None for a pod whose rank cannot be told: it is none of ours, whatever its labels say."""
    meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    labels, notes = meta.get("labels") or {}, meta.get("annotations") or {}
    name, spare = POD_NAME.match(meta["name"]), SPARE_NAME.match(meta["name"])
    rank = _number(labels.get(contract.LABEL_RANK), otherwise=name and name[1])
    if spare is not None:
        name, rank = spare, contract.NO_RANK if rank is None else rank
    made_in = _number(notes.get(contract.ANNOTATION_MADE_IN), otherwise=name and name[2])
    if rank is None or made_in is None:
        return None
    deadline = _time(meta.get("deletionTimestamp"))
    grace = meta.get("deletionGracePeriodSeconds") or 0
    conditions = {c["type"]: c for c in status.get("conditions") or []}
    disruption = _if_true(conditions.get("DisruptionTarget"))
    placed = conditions.get("PodScheduled")
    unplaced = placed if placed and placed["status"] == "False" else None
    containers = _containers(status)
    trainer, sidecar = trainer_name(spec), contract.CONTAINER_SIDECAR
    said = _directive(notes)
    view = PodView(
        name=meta["name"],
        uid=meta["uid"],
        resource_version=meta["resourceVersion"],
        rank=rank,
        made_in=made_in,
        spare=int(spare[1]) if spare is not None else None,
        created_at=_time(meta["creationTimestamp"]) or 0.0,
        node=spec.get("nodeName") or None,
        ip=status.get("podIP") or None,
        status_port=status_port_of(raw),
        rendezvous_told=bool(_told(raw).get("rendezvousTold")),
        phase=status.get("phase") or "Pending",
        reason=status.get("reason"),
        message=status.get("message"),
        deleting_since=None if deadline is None else deadline - grace,
        deletion_deadline=deadline,
        disruption=(disruption.get("reason") or "Unknown") if disruption else None,
        disruption_message=disruption.get("message") if disruption else None,
        scheduled=None if placed is None else placed["status"] == "True",
        scheduled_since=(
            _time(placed.get("lastTransitionTime"))
            if placed and placed["status"] == "True"
            else None
        ),
        unschedulable_message=unplaced and unplaced.get("message"),
        unschedulable_since=unplaced and _time(unplaced.get("lastTransitionTime")),
        trainer=containers.get(trainer) if trainer else None,
        sidecar=containers.get(sidecar),
        others=tuple(c for name, c in containers.items() if name not in (trainer, sidecar)),
        directive=said.bare() if said is not None else None,
        told_at=said.sent_at if said is not None else None,
        template_hash=notes.get(contract.ANNOTATION_TEMPLATE_HASH),
        has_store_mode=notes.get(contract.ANNOTATION_STORE_MODE) == "true",
    )
    return with_queue(view, raw)


def trainer_name(pod_spec: Raw) -> str | None:
    """The container that runs under our supervisor, of this very pod: the job's template may
    have changed since it was made."""
    for container in pod_spec.get("containers") or []:
        if (container.get("command") or [None])[0] == contract.SUPERVISE:
            return str(container["name"])
    return None


def status_port_of(raw: Raw) -> int | None:
    """The port of this pod's sidecar, from its own manifest."""
    port = _told(raw).get("statusPort")
    return port if type(port) is int and 0 < port < 65536 else None


def _told(raw: Raw) -> Raw:
    """The configuration of this pod's sidecar, as it stands in the pod's own manifest."""
    for container in (raw.get("spec") or {}).get("initContainers") or []:
        if container["name"] == contract.CONTAINER_SIDECAR:
            values = {e["name"]: e.get("value") for e in container.get("env") or []}
            try:
                told = json.loads(values[contract.ENV_CONFIG])
            except (KeyError, TypeError, ValueError, RecursionError):
                return {}
            return told if isinstance(told, dict) else {}
    return {}


def _containers(status: Raw) -> dict[str, ContainerView]:
    init, main = status.get("initContainerStatuses"), status.get("containerStatuses")
    return {entry["name"]: _container(entry) for entry in [*(init or []), *(main or [])]}


def _container(raw: Raw) -> ContainerView:
    state, last = raw.get("state") or {}, raw.get("lastState") or {}
    running, waiting = state.get("running"), state.get("waiting") or {}
    return ContainerView(
        name=raw["name"],
        running=running is not None,
        started_at=_time((running or {}).get("startedAt")),
        ready=bool(raw.get("ready")),
        waiting_reason=waiting.get("reason"),
        waiting_message=waiting.get("message"),
        ended=_end(state.get("terminated")),
        last_end=_end(last.get("terminated")),
        restarts=int(raw.get("restartCount") or 0),
    )


def _end(raw: Raw | None) -> ContainerEnd | None:
    if raw is None:
        return None
    code = int(raw.get("exitCode") or 0)
    # The runtimes leave `signal` out and say 128 + signal; a program that exits 137 by itself
    # cannot be told from a killed one here: the supervisor's report knows better.
    signal = raw.get("signal") or (code - 128 if 128 < code <= 128 + 64 else None)
    return ContainerEnd(
        exit_code=code,
        signal=signal,
        reason=raw.get("reason"),
        message=raw.get("message"),
        finished_at=_time(raw.get("finishedAt")),
    )


def _directive(annotations: Raw) -> wire.Directive | None:
    text = annotations.get(contract.ANNOTATION_DIRECTIVE)
    if not text:
        return None
    try:
        return wire.Directive.model_validate_json(text)
    except ValidationError:
        return None


def node_view(
    name: str,
    raw: Raw | None,
    *,
    lease_renewed_at: float | None,
    tainted_at: Mapping[str, float] | None = None,
) -> NodeView:
    """`raw` None: the API server said 404."""
    if raw is None:
        return NodeView(name=name, exists=False, ready=None, lease_renewed_at=lease_renewed_at)
    conditions = {c["type"]: c for c in (raw.get("status") or {}).get("conditions") or []}
    ready = conditions.get("Ready")
    is_ready = {"True": True, "False": False}.get(ready["status"]) if ready else None
    return NodeView(
        name=name,
        ready=is_ready,
        not_ready_since=(
            None if is_ready or ready is None else _time(ready.get("lastTransitionTime"))
        ),
        taints=taints_of(raw),
        tainted_at=tainted_at or {},
        lease_renewed_at=lease_renewed_at,
    )


def _time(text: str | None) -> float | None:
    return None if text is None else float(parse_time(text))


def _number(text: str | None, *, otherwise: str | None) -> int | None:
    for candidate in (text, otherwise):
        if candidate is not None and candidate.isascii() and candidate.isdigit():
            return int(candidate)
    return None


def _if_true(condition: Raw | None) -> Raw | None:
    return condition if condition and condition.get("status") == "True" else None
