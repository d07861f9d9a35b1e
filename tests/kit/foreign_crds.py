"""Just enough of other projects' CRDs for an API server to keep their objects.

Written here from their public field names; they check nothing. Must never hold a copied schema.
"""

from __future__ import annotations

from typing import Any


def crd(*, group: str, version: str, kind: str, plural: str) -> dict[str, Any]:
    """A namespaced kind that keeps whatever is written into it."""
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
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "x-kubernetes-preserve-unknown-fields": True,
                        }
                    },
                }
            ],
        },
    }


def pod_groups(api_version: str) -> dict[str, Any]:
    group, _, version = api_version.partition("/")
    return crd(group=group, version=version, kind="PodGroup", plural="podgroups")
