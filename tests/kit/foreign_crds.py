"""Just enough of other projects' CRDs for an API server to keep their objects, and to refuse what
the real ones would.

Written here from their public field names and types. Must never hold a copied schema.
"""

from __future__ import annotations

from typing import Any

_COUNT = {"type": "integer", "format": "int32"}
_TEXT = {"type": "string"}
# Volcano 1.12 and scheduler-plugins 0.32: what a user or we may write into a PodGroup's spec.
_POD_GROUPS: dict[str, dict[str, Any]] = {
    "scheduling.volcano.sh": {
        "minMember": _COUNT,
        "queue": {**_TEXT, "default": "default"},
        "priorityClassName": _TEXT,
        "preemptable": {"type": "boolean"},
        "networkTopology": {
            "type": "object",
            "properties": {
                "mode": {**_TEXT, "enum": ["hard", "soft"], "default": "hard"},
                "highestTierAllowed": {"type": "integer", "default": 1},
            },
        },
    },
    "scheduling.x-k8s.io": {
        "minMember": {**_COUNT, "minimum": 1},
        "scheduleTimeoutSeconds": _COUNT,
    },
}


def crd(
    *, group: str, version: str, kind: str, plural: str, fields: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A namespaced kind with `fields` in its spec; None: it keeps whatever is written into it."""
    schema: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    if fields is not None:
        spec = {"type": "object", "properties": fields}
        schema = {"type": "object", "properties": {"spec": spec}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            # Groups of k8s.io want a word on who allowed them.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "listKind": f"{kind}List"},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def pod_groups(api_version: str) -> dict[str, Any]:
    group, _, version = api_version.partition("/")
    fields = _POD_GROUPS[group]
    return crd(group=group, version=version, kind="PodGroup", plural="podgroups", fields=fields)
