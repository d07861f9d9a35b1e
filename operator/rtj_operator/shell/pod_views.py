"""Raw pods of the API server -> the frozen views that decisions are made from.

Pure: what a field means is settled here once. Must never guess: what a raw pod does not say is None
in the view.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from rtj_api import contract, wire
from rtj_api.status import parse_time

from rtj_operator.core.observed import ContainerEnd, ContainerView, PodView
from rtj_operator.shell.queues import with_queue

Raw = Mapping[str, Any]

SPARE_NAME = re.compile(r"^.*-s(\d+)-(\d+)-[0-9a-f]{4}$")
POD_NAME = re.compile(r"^.*-(\d+)-(\d+)-[0-9a-f]{4}$")


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
    deadline = time_of(meta.get("deletionTimestamp"))
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
        created_at=time_of(meta["creationTimestamp"]) or 0.0,
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
            time_of(placed.get("lastTransitionTime"))
            if placed and placed["status"] == "True"
            else None
        ),
        unschedulable_message=unplaced and unplaced.get("message"),
        unschedulable_since=unplaced and time_of(unplaced.get("lastTransitionTime")),
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
        started_at=time_of((running or {}).get("startedAt")),
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
        finished_at=time_of(raw.get("finishedAt")),
    )


def _directive(annotations: Raw) -> wire.Directive | None:
    text = annotations.get(contract.ANNOTATION_DIRECTIVE)
    if not text:
        return None
    try:
        return wire.Directive.model_validate_json(text)
    except ValidationError:
        return None


def time_of(text: str | None) -> float | None:
    """Unix seconds of an RFC 3339 time of the API server."""
    return None if text is None else float(parse_time(text))


def _number(text: str | None, *, otherwise: str | None) -> int | None:
    for candidate in (text, otherwise):
        if candidate is not None and candidate.isascii() and candidate.isdigit():
            return int(candidate)
    return None


def _if_true(condition: Raw | None) -> Raw | None:
    return condition if condition and condition.get("status") == "True" else None
