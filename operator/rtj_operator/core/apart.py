"""Keeping the pods of a job off each other's nodes, where a node's disk holds the checkpoints.

Two ranks on one node would write one directory, each sidecar taking the other's saves for its own.
Pure: pod spec in, pod spec out.
"""

from __future__ import annotations

from typing import Any

from rtj_api import contract

_KIND = "requiredDuringSchedulingIgnoredDuringExecution"
_HOST = "kubernetes.io/hostname"


def keep_apart(spec: dict[str, Any], *, job: str) -> dict[str, Any]:
    """The pod spec with a required anti-affinity to all pods of that job, beside the user's own.

    Pods that still end count, too: their directory is not free before they are gone.
    """
    term = {
        "labelSelector": {"matchLabels": {contract.LABEL_JOB: job}},
        "topologyKey": _HOST,
    }
    affinity = spec.get("affinity") or {}
    anti = affinity.get("podAntiAffinity") or {}
    terms = [*(anti.get(_KIND) or []), term]
    return {**spec, "affinity": {**affinity, "podAntiAffinity": {**anti, _KIND: terms}}}
