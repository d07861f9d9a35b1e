"""What a template may not ask for beside spares: a spare's containers run before it has a rank.
An elastic gang grows by such pods, too.

Whatever the kubelet works out once, at a container's start, from the label that bears the rank
would be wrong in a spare for as long as it lives. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rtj_api import contract
from rtj_api.reasons import Reason

from rtj_operator.core.template import refuse

FIXED = (contract.LABEL_RANK, contract.LABEL_ROLE)


def check(pod: Mapping[str, Any]) -> None:
    """Raises SpecRefused where a container's environment is made from a spare's coming rank. A
    downward-API volume may hold it: the kubelet renews its files."""
    for where, path in _fields(pod):
        if any(label in path for label in FIXED):
            refuse(
                Reason.INVALID_SPEC,
                f"{where} is made from {path}, which a spare does not have when its containers "
                f"start. Let the trainer read {contract.ENV_RANK} in its place, which it is "
                "started with, or set spec.recovery.spares to 0 and remove spec.elastic.",
            )


def _fields(pod: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for kind in ("initContainers", "containers"):
        for number, container in enumerate(pod.get(kind) or []):
            for entry in container.get("env") or []:
                source = (entry.get("valueFrom") or {}).get("fieldRef") or {}
                name = f"spec.template.spec.{kind}[{number}].env[{entry.get('name')}]"
                yield name, str(source.get("fieldPath", ""))
