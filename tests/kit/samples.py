"""One instance of an API model with every field set, so that a test can see each of them survive.

It reads the JSON schema, not the types: what a schema does not allow cannot come out of here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

TIME = "2026-01-02T03:04:05.250000Z"
WHOLE_TIME = "2026-01-02T03:04:05Z"


def full(model: type[BaseModel]) -> dict[str, Any]:
    """JSON data of `model` with every field at every depth set, lists with one item."""
    schema = model.model_json_schema(by_alias=True)
    return _value(schema, definitions=schema.get("$defs", {}), name="")


def _value(node: Mapping[str, Any], *, definitions: Mapping[str, Any], name: str) -> Any:
    if "$ref" in node:
        node = definitions[node["$ref"].rsplit("/", 1)[1]]
    for choice in node.get("anyOf", ()):
        if choice.get("type") != "null":
            return _value(choice, definitions=definitions, name=name)
    if "enum" in node:
        return node["enum"][-1]
    kind = node.get("type")
    if kind == "object":
        if "properties" in node:
            return {
                key: _value(child, definitions=definitions, name=key)
                for key, child in node["properties"].items()
            }
        return {"key": "value"}
    if kind == "array":
        return [_value(node["items"], definitions=definitions, name=name)]
    if kind == "boolean":
        return True
    if kind == "integer":
        return max(7, node.get("minimum", 7))
    if kind == "number":
        return 7.5
    if node.get("format") == "date-time":
        # A condition's time has whole seconds, as metav1.Time.
        return WHOLE_TIME if name == "lastTransitionTime" else TIME
    if "pattern" in node:
        return {"^(True|False|Unknown)$": "True"}[node["pattern"]]
    return "x"
