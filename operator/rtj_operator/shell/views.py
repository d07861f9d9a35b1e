"""Raw jobs and nodes of the API server -> the frozen views that decisions are made from.

Pure: what a field means is settled here once. Must never guess: what a raw object does not say
is None in the view.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from rtj_api import contract, v1alpha1, wire
from rtj_api.reasons import Reason
from rtj_api.status import Status

from rtj_operator.core import pod_facts
from rtj_operator.core import pods as manifests
from rtj_operator.core.observed import (
    JobKey,
    JobSpec,
    JobView,
    NodeView,
    SpecProblem,
)
from rtj_operator.core.template import SpecRefused
from rtj_operator.shell.pod_views import time_of
from rtj_operator.shell.taints import taints_of

Raw = Mapping[str, Any]

# The garbage collector's own: it stands there until no pod names the job as its owner any more.
ORPHAN = "orphan"


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
        created_at=time_of(meta.get("creationTimestamp")),
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
            None if is_ready or ready is None else time_of(ready.get("lastTransitionTime"))
        ),
        taints=taints_of(raw),
        tainted_at=tainted_at or {},
        lease_renewed_at=lease_renewed_at,
    )
