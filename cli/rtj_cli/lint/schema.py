"""A value against a structural schema with CEL rules, as the API server does it.

Fields that are not known are errors, as with kubectl's strict validation. Rules are asked only
where the shape is right, and after defaults were filled in. Pure.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from rtj_cli.lint.cel import CelError, compiled

Path = tuple[str | int, ...]
Schema = Mapping[str, Any]
_OPEN = "x-kubernetes-preserve-unknown-fields"
_EITHER = "x-kubernetes-int-or-string"
_TYPES = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """`path`: of the field, or of the object in which one is missing."""

    path: Path
    message: str

    @property
    def field(self) -> str:
        text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path)
        return text.removeprefix(".")


def faults(value: Any, schema: Schema) -> list[Fault]:
    """Everything that is wrong with the shape; if nothing is, what the rules say."""
    found = list(_shape(value, schema, ()))
    return found or list(_rules(with_defaults(value, schema), schema, ()))


def with_defaults(value: Any, schema: Schema) -> Any:
    """A copy, with the defaults of what is absent below objects that are there."""
    if isinstance(value, Mapping):
        found = {key: value[key] for key in value if value[key] is not None}
        for key, sub in (schema.get("properties") or {}).items():
            if key not in found and "default" in sub:
                found[key] = deepcopy(sub["default"])
            if key in found:
                found[key] = with_defaults(found[key], sub)
        return found
    if isinstance(value, list):
        return [with_defaults(item, schema.get("items") or {}) for item in value]
    return value


def _is_of(value: Any, kind: str) -> bool:
    if kind in ("integer", "number"):
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return number and (kind == "number" or float(value).is_integer())
    kinds = {"string": str, "boolean": bool, "array": list, "object": Mapping}
    return isinstance(value, kinds[kind])


def _shape(value: Any, schema: Schema, path: Path) -> Iterator[Fault]:
    kind = schema.get("type")
    if schema.get(_EITHER):
        if not _is_of(value, "integer") and not isinstance(value, str):
            yield Fault(path, "must be a whole number or a text")
            return
    elif kind is not None and not _is_of(value, kind):
        yield Fault(path, f"must be {_TYPES[kind]}, not {_word(value)}")
        return
    yield from _bounds(value, schema, path)
    if isinstance(value, Mapping):
        yield from _object(value, schema, path)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _shape(item, schema.get("items") or {}, (*path, index))


def _object(value: Mapping[str, Any], schema: Schema, path: Path) -> Iterator[Fault]:
    known = schema.get("properties") or {}
    rest = schema.get("additionalProperties")
    for key in schema.get("required") or ():
        if value.get(key) is None:
            yield Fault(path, f"{key} is required")
    for key, sub in value.items():
        at = (*path, str(key))
        if key in known:
            if sub is not None:
                yield from _shape(sub, known[key], at)
        elif isinstance(rest, Mapping):
            yield from _shape(sub, rest, at)
        elif known and not schema.get(_OPEN):
            near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.6)
            hint = f": did you mean {near[0]}?" if near else ""
            yield Fault(at, f"unknown field{hint}")


def _bounds(value: Any, schema: Schema, path: Path) -> Iterator[Fault]:
    if "enum" in schema and value not in schema["enum"]:
        yield Fault(path, f"must be one of {', '.join(map(str, schema['enum']))}, not {value}")
    if isinstance(value, str):
        if "pattern" in schema and not re.search(schema["pattern"], value):
            yield Fault(path, f"{value!r} does not have the form {schema['pattern']}")
        yield from _between(len(value), schema, path, "minLength", "maxLength", " characters")
    elif isinstance(value, list):
        yield from _between(len(value), schema, path, "minItems", "maxItems", " entries")
    elif isinstance(value, Mapping):
        yield from _between(len(value), schema, path, "minProperties", "maxProperties", " entries")
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from _between(value, schema, path, "minimum", "maximum", "")
        if schema.get("exclusiveMinimum") is True and value == schema.get("minimum"):
            yield Fault(path, f"must be above {value}")
        if schema.get("exclusiveMaximum") is True and value == schema.get("maximum"):
            yield Fault(path, f"must be below {value}")


def _between(
    count: float, schema: Schema, path: Path, low: str, high: str, what: str
) -> Iterator[Fault]:
    if low in schema and count < schema[low]:
        yield Fault(path, f"must be at least {schema[low]}{what}, not {count}")
    if high in schema and count > schema[high]:
        yield Fault(path, f"must be at most {schema[high]}{what}, not {count}")


def _rules(value: Any, schema: Schema, path: Path) -> Iterator[Fault]:
    for rule in schema.get("x-kubernetes-validations") or ():
        if "oldSelf" in rule["rule"]:
            continue  # of a change, not of a manifest
        try:
            holds = compiled(rule["rule"])({"self": value})
        except CelError as error:
            yield Fault(path, f"{rule['message']} (the rule cannot be asked: {error})")
            continue
        if not holds:
            yield Fault(path, rule["message"])
    if isinstance(value, Mapping):
        known, rest = schema.get("properties") or {}, schema.get("additionalProperties")
        for key, sub in value.items():
            below = known.get(key) or (rest if isinstance(rest, Mapping) else None)
            if below is not None:
                yield from _rules(sub, below, (*path, str(key)))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _rules(item, schema.get("items") or {}, (*path, index))


def _word(value: Any) -> str:
    if isinstance(value, Mapping):
        return "an object"
    return "a list" if isinstance(value, list) else repr(value)
