"""Where things are on the API server, and what its answers say. Must never send anything."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote_plus as quote  # "/" too: some names come from reports

from rtj_api import contract

from rtj_operator.core.observed import JobKey
from rtj_operator.shell.api import ApiError

JOBS = f"/apis/{contract.GROUP}/{contract.VERSION}"


def error_of(status: int, data: bytes, *, retry_after: str | None) -> ApiError:
    reason, message = "", data[:1000].decode(errors="replace")
    try:
        answer: Any = json.loads(data)
        reason, message = answer.get("reason") or "", answer.get("message") or message
    except (ValueError, AttributeError):
        pass
    try:
        seconds = float(retry_after) if retry_after else None
    except ValueError:
        seconds = None
    return ApiError(status=status, reason=reason, message=message, retry_after=seconds)


def job_path(key: JobKey) -> str:
    return f"{JOBS}/namespaces/{quote(key.namespace)}/{contract.PLURAL}/{quote(key.name)}"


def pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(name)}"


def lease_path(namespace: str, name: str) -> str:
    space = f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace)}"
    return f"{space}/leases/{quote(name)}"


def config_map_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace)}/configmaps/{quote(name)}"
