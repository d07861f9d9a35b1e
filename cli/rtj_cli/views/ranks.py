"""`rtj top`: a row a rank out of the sidecars' own reports. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError
from rtj_api import contract
from rtj_api.wire import Report

from rtj_cli.jobs import Raw
from rtj_cli.views.words import ago, number, span


def port_of(pod: Raw) -> int:
    """Of its sidecar, from the pod's own manifest: on the host's network each has another."""
    for container in (pod.get("spec") or {}).get("initContainers") or ():
        if container.get("name") == contract.CONTAINER_SIDECAR:
            told = {each["name"]: each.get("value") for each in container.get("env") or ()}
            try:
                return int(json.loads(told[contract.ENV_CONFIG])["statusPort"])
            except (KeyError, TypeError, ValueError):
                break
    return contract.PORT_STATUS


def read_report(raw: Raw) -> Report | None:
    try:
        return Report.model_validate(raw)
    except ValidationError:
        return None


def row(pod: Raw, report: Report | None, *, now: float) -> dict[str, Any]:
    """`report` None: not heard, so only what the kubelet says is known."""
    meta, status = pod["metadata"], pod.get("status") or {}
    told = (meta.get("labels") or {}).get(contract.LABEL_RANK)
    found: dict[str, Any] = {
        "rank": int(told) if told is not None and told.isdigit() else None,
        "pod": meta["name"],
        "node": (pod.get("spec") or {}).get("nodeName"),
        "podPhase": status.get("phase"),
    }
    if report is None:
        return {**found, **dict.fromkeys(_REPORTED)}
    seen, saves = report.progress, report.checkpoint
    pace = seen.pace_seconds if seen.pace_seconds is not None else seen.step_seconds
    lag = None
    if saves.pending_saves and saves.last_saved_at is not None:
        lag = max(0.0, now - saves.last_saved_at)
    transfer = report.transfers[0] if report.transfers else None
    return {
        **found,
        "phase": report.phase.value,
        "attempt": report.attempt,
        "step": seen.step,
        "loss": seen.loss,
        "stepsPerSecond": 1 / pace if pace else None,
        "updatedAt": seen.updated_at,
        "pendingSaves": saves.pending_saves,
        "pendingBytes": saves.pending_bytes,
        "uploadLagSeconds": lag,
        "transfer": None if transfer is None else f"{transfer.kind.value} {transfer.name}",
        "problems": [each.reason for each in report.degraded],
    }


_REPORTED = (
    "phase",
    "attempt",
    "step",
    "loss",
    "stepsPerSecond",
    "updatedAt",
    "pendingSaves",
    "pendingBytes",
    "uploadLagSeconds",
    "transfer",
    "problems",
)


def columns(*, now: float) -> Mapping[str, Callable[[Mapping[str, Any]], str]]:
    def told(key: str) -> Callable[[Mapping[str, Any]], str]:
        return lambda one: "" if one[key] is None else str(one[key])

    return {
        "rank": lambda one: "spare" if one["rank"] is None else str(one["rank"]),
        "phase": lambda one: one["phase"] or f"({one['podPhase']})",
        "attempt": told("attempt"),
        "step": told("step"),
        "loss": lambda one: number(one["loss"]),
        "steps/s": lambda one: number(one["stepsPerSecond"]),
        "heard": lambda one: ago(one["updatedAt"], now=now),
        "unsent": lambda one: str(one["pendingSaves"] or ""),
        "lag": lambda one: span(one["uploadLagSeconds"]),
        "node": told("node"),
        "why": lambda one: ", ".join([*filter(None, [one["transfer"]]), *(one["problems"] or ())]),
    }
