"""What the CRD says of a pod template: only what a rule must see, the rest passes through.

A template field newer than this code must never be lost, so every object here keeps unknown
fields. The bounds are what keeps the rules within the API server's cost budget.
"""

from __future__ import annotations

from typing import Any, Final

from rtj_api.validations import POD_SPEC, TEMPLATE_METADATA, rules

MAX_CONTAINERS: Final = 16
MAX_ARGUMENT_BYTES: Final = 32_768

PRESERVED: Final[dict[str, Any]] = {
    "type": "object",
    "x-kubernetes-preserve-unknown-fields": True,
}
PRESERVED_ITEMS: Final[dict[str, Any]] = {
    "items": PRESERVED,
    "x-kubernetes-list-type": "atomic",
}
PRESERVED_ITEMS_WITH_NAME: Final[dict[str, Any]] = {
    "items": PRESERVED
    | {"properties": {"name": {"type": "string", "maxLength": 256}}, "required": ["name"]},
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name"],
}


def _named_items(limit: int, **more: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "array",
        "maxItems": limit,
        "items": PRESERVED
        | {
            "required": ["name"],
            "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 63}} | more,
        },
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    }


_WORDS: Final[dict[str, Any]] = {
    "type": "array",
    "maxItems": 1024,
    "items": {"type": "string", "maxLength": MAX_ARGUMENT_BYTES},
    "x-kubernetes-list-type": "atomic",
}
_TEXTS: Final[dict[str, Any]] = {
    "type": "object",
    "maxProperties": 128,
    "additionalProperties": {"type": "string"},
}

POD_TEMPLATE: Final[dict[str, Any]] = PRESERVED | {
    "required": ["spec"],
    "properties": {
        "metadata": PRESERVED
        | {"properties": {"labels": _TEXTS, "annotations": _TEXTS}}
        | rules(*TEMPLATE_METADATA),
        "spec": PRESERVED
        | {
            "required": ["containers"],
            "properties": {
                "containers": _named_items(
                    MAX_CONTAINERS, command=_WORDS, args=_WORDS, image={"type": "string"}
                )
                | {"minItems": 1},
                "initContainers": _named_items(MAX_CONTAINERS),
                "volumes": _named_items(256),
                "hostPID": {"type": "boolean"},
            },
        }
        | rules(*POD_SPEC),
    },
}
"""What of a PodTemplateSpec the rules must see; everything else passes through untouched."""
