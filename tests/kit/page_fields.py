"""Whether names of the API that a page uses are there: fields, labels, requests, containers.

The schema is the generated CRD's, so a field that was renamed is found on every page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import yaml
from pydantic import ValidationError
from rtj_api import contract
from rtj_api.wire import Request

from kit.pages import ROOT

CONTAINERS = frozenset({contract.CONTAINER_TRAINER, contract.CONTAINER_SIDECAR})
LABELS = frozenset(
    {contract.LABEL_JOB, contract.LABEL_RANK, contract.LABEL_ROLE, "app.kubernetes.io/name"}
)


@cache
def _schema() -> dict[str, Any]:
    crd = yaml.safe_load((ROOT / "crds" / "resumabletrainingjobs.yaml").read_text())
    (version,) = crd["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def unknown_in_job(job: Any) -> list[str]:
    """Names in (a part of) a job that the API server would drop or refuse."""
    return list(_unknown(job, _schema(), at=""))


def _unknown(value: Any, schema: dict[str, Any], *, at: str) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _unknown(item, schema.get("items", {}), at=f"{at}[]")
    if not isinstance(value, dict):
        return
    known = schema.get("properties")
    if known is None:
        extra = schema.get("additionalProperties")
        for name, item in value.items() if isinstance(extra, dict) else ():
            yield from _unknown(item, extra, at=f"{at}.{name}")
        return
    for name, item in value.items():
        if name in known:
            yield from _unknown(item, known[name], at=f"{at}.{name}")
        elif not at and name in {"apiVersion", "kind", "metadata"}:
            continue
        elif not schema.get("x-kubernetes-preserve-unknown-fields"):
            yield f"no field {at}.{name}"


def unknown_path(parts: Sequence[str]) -> list[str]:
    """Whether `status.checkpoint.resumeMessage`, in its parts, is a field."""
    value: Any = None
    for part in reversed(parts):
        value = {part: value}
    return [] if parts and parts[0] == "metadata" else unknown_in_job(value)


def wrong_request(text: str) -> list[str]:
    try:
        Request.model_validate_json(text)
    except ValidationError as error:
        return [f"no request of ours: {error.errors()[0]['msg']}"]
    return []
