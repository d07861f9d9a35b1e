"""Keeping a new pod off nodes: those just found lost, and those that spoil trainings.

The scheduler trusts a silent node until Kubernetes calls it NotReady, about 50 s after its death,
and a forced deletion makes room on exactly that node; without this the replacement of a lost pod
is bound to the dead node again (seen in simulation). Pure: manifest in, manifest out.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

_KIND = "requiredDuringSchedulingIgnoredDuringExecution"
_WISH = "preferredDuringSchedulingIgnoredDuringExecution"
_MOST = 100  # the largest weight of a wish


def keep_off(manifest: dict[str, Any], nodes: Collection[str]) -> dict[str, Any]:
    """The pod manifest with a required node affinity `metadata.name NotIn nodes`.

    Node selector terms are alternatives, so the demands are added to each of the user's own. The
    API server takes only one value for a node field, hence one demand a node.
    """
    if not nodes:
        return manifest
    demands = _outside(nodes)
    spec = manifest["spec"]
    affinity = spec.get("affinity") or {}
    node_affinity = affinity.get("nodeAffinity") or {}
    terms = (node_affinity.get(_KIND) or {}).get("nodeSelectorTerms") or [{}]
    kept = [{**t, "matchFields": [*(t.get("matchFields") or []), *demands]} for t in terms]
    required = {**(node_affinity.get(_KIND) or {}), "nodeSelectorTerms": kept}
    return {
        **manifest,
        "spec": {
            **spec,
            "affinity": {**affinity, "nodeAffinity": {**node_affinity, _KIND: required}},
        },
    }


def shun(manifest: dict[str, Any], nodes: Collection[str]) -> dict[str, Any]:
    """The pod manifest with a preference, as strong as one can be, for nodes other than these."""
    if not nodes:
        return manifest
    spec = manifest["spec"]
    affinity = spec.get("affinity") or {}
    node_affinity = affinity.get("nodeAffinity") or {}
    wish = {"weight": _MOST, "preference": {"matchFields": _outside(nodes)}}
    wishes = [*(node_affinity.get(_WISH) or []), wish]
    return {
        **manifest,
        "spec": {
            **spec,
            "affinity": {**affinity, "nodeAffinity": {**node_affinity, _WISH: wishes}},
        },
    }


def _outside(nodes: Collection[str]) -> list[dict[str, Any]]:
    # The API server takes exactly one value for a field selector.
    return [{"key": "metadata.name", "operator": "NotIn", "values": [n]} for n in sorted(nodes)]
