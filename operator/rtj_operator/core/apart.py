"""Keeping the pods of a job off each other's nodes, where a node's disk holds the checkpoints.

Two ranks on one node would write one directory, each sidecar taking the other's saves for its own.
A spare is rather kept apart: beside a rank it would be lost with the node that it is there for.
Pure: pod spec in, pod spec out.
"""

from __future__ import annotations

from typing import Any

from rtj_api import contract

_KIND = "requiredDuringSchedulingIgnoredDuringExecution"
_WISH = "preferredDuringSchedulingIgnoredDuringExecution"
_MOST = 100  # the largest weight of a wish
_HOST = "kubernetes.io/hostname"


def keep_apart(spec: dict[str, Any], *, job: str) -> dict[str, Any]:
    """The pod spec with a required anti-affinity to all pods of that job, beside the user's own.

    Pods that still end count, too: their directory is not free before they are gone.
    """
    term = _all_of(job)
    affinity = spec.get("affinity") or {}
    anti = affinity.get("podAntiAffinity") or {}
    terms = [*(anti.get(_KIND) or []), term]
    return {**spec, "affinity": {**affinity, "podAntiAffinity": {**anti, _KIND: terms}}}


def rather_apart(spec: dict[str, Any], *, job: str) -> dict[str, Any]:
    """The pod spec with a wish, as strong as one can be, for a node without a pod of that job."""
    wish = {"weight": _MOST, "podAffinityTerm": _all_of(job)}
    affinity = spec.get("affinity") or {}
    anti = affinity.get("podAntiAffinity") or {}
    wishes = [*(anti.get(_WISH) or []), wish]
    return {**spec, "affinity": {**affinity, "podAntiAffinity": {**anti, _WISH: wishes}}}


def _all_of(job: str) -> dict[str, Any]:
    return {
        "labelSelector": {"matchLabels": {contract.LABEL_JOB: job}},
        "topologyKey": _HOST,
    }
