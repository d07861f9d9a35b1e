"""From pydantic's JSON schema to the structural schema that a CRD may hold.

Kubernetes accepts no `$ref`, no null type, no `anyOf` of types but int-or-string, and wants every
list to say how it merges; pydantic writes all of these freely. Pure: data in, data out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Schema = dict[str, Any]

QUANTITY_PATTERN: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
"""As in the CRDs of Kubernetes' own kubebuilder for `resource.Quantity`."""

_OPTIONAL: Final = "x-optional"
"""Marks, during the conversion only, what may be null in Python: absent means absent."""

_DROPPED: Final = frozenset({"title", "$defs", "discriminator", _OPTIONAL})


class NotStructural(ValueError):
    """A model uses a type that a CRD cannot hold; the message names the path."""


def structural(
    schema: Mapping[str, Any], *, defaults: bool, lists: Mapping[str, Schema] | None = None
) -> Schema:
    """The structural form of a model's JSON schema.

    `defaults` false leaves every default out (a status is written whole by its owner). `lists`
    gives, by dotted path, the list extensions of lists that are not atomic.
    Raises NotStructural for unions other than int-or-string and optional.
    """
    definitions = schema.get("$defs", {})
    return _convert(schema, definitions=definitions, defaults=defaults, lists=lists or {}, path="")


def _convert(
    node: Mapping[str, Any],
    *,
    definitions: Mapping[str, Any],
    defaults: bool,
    lists: Mapping[str, Schema],
    path: str,
) -> Schema:
    node = _inlined(node, definitions=definitions)
    node = _without_null(node, definitions=definitions, path=path)

    def child(value: Mapping[str, Any], step: str) -> Schema:
        return _convert(
            value, definitions=definitions, defaults=defaults, lists=lists, path=path + step
        )

    found: Schema = {}
    for key, value in node.items():
        if key in _DROPPED or (key == "default" and (not defaults or value in (None, [], {}))):
            continue
        if key == "properties":
            found[key] = {name: child(sub, f".{name}") for name, sub in value.items()}
        elif key == "items":
            found[key] = child(value, "[]")
        elif key == "additionalProperties":
            if isinstance(value, Mapping):
                found[key] = child(value, ".*")
            elif value and node.get("type") == "object":
                found["x-kubernetes-preserve-unknown-fields"] = True
        elif key in ("exclusiveMinimum", "exclusiveMaximum"):
            found[key.removeprefix("exclusive").lower()] = value
            found[key] = True
        elif key == "description":
            found[key] = " ".join(value.split())
        else:
            found[key] = value
    if found.get("type") == "array":
        found = {"x-kubernetes-list-type": "atomic"} | found | lists.get(path, {})
    if found.get("type") == "object" and defaults and path and _can_be_empty(node, found):
        found["default"] = {}
    return found


def _inlined(node: Mapping[str, Any], *, definitions: Mapping[str, Any]) -> Schema:
    """`node` with a reference replaced by what it names; what stands beside the reference wins."""
    merged = dict(node)
    while (reference := merged.pop("$ref", None)) is not None:
        merged = dict(definitions[reference.rsplit("/", 1)[1]]) | merged
    return merged


def _without_null(node: Mapping[str, Any], *, definitions: Mapping[str, Any], path: str) -> Schema:
    choices = node.get("anyOf")
    if choices is None:
        return dict(node)
    rest = {key: value for key, value in node.items() if key != "anyOf"}
    kept = [choice for choice in choices if choice.get("type") != "null"]
    if sorted(choice.get("type", "") for choice in kept) == ["integer", "string"]:
        return rest | {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": QUANTITY_PATTERN,
            "x-kubernetes-int-or-string": True,
        }
    if len(kept) != 1:
        raise NotStructural(f"{path or 'the root'}: a CRD cannot hold the union {choices}")
    return _inlined(kept[0], definitions=definitions) | rest | {_OPTIONAL: True}


def _can_be_empty(node: Mapping[str, Any], converted: Mapping[str, Any]) -> bool:
    """An absent object means its defaults, which the server can only fill in below `{}`."""
    return (
        not node.get("required")
        and _OPTIONAL not in node
        and any("default" in child for child in converted.get("properties", {}).values())
    )
