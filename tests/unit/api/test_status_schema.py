"""Nothing that the operator remembers may be pruned: the schema knows every field of a status."""

from __future__ import annotations

from typing import Any

from kit.samples import full
from rtj_api.crdgen import object_schema
from rtj_api.status import Status


def unknown(value: Any, schema: dict[str, Any], path: str = "status") -> list[str]:
    if isinstance(value, list):
        return [found for item in value for found in unknown(item, schema["items"], path + "[]")]
    if not isinstance(value, dict):
        return []
    known = schema.get("properties", {})
    return [f"{path}.{key}" for key in value if key not in known] + [
        found
        for key, child in value.items()
        if key in known
        for found in unknown(child, known[key], f"{path}.{key}")
    ]


def test_the_sample_sets_every_field() -> None:
    sample = Status.model_validate(full(Status))
    unset = [name for name in Status.model_fields if getattr(sample, name) in (None, (), [])]
    assert unset == []
    assert sample.current is not None
    assert sample.current.culprit is not None
    assert sample.attempts[0].phases.detect is not None


def test_every_field_of_a_full_status_is_in_the_schema() -> None:
    schema = object_schema()["properties"]["status"]
    written = Status.model_validate(full(Status)).dump()
    assert written["current"]["culprit"]
    assert unknown(written, schema) == []
    assert unknown(written | {"invented": 1}, schema) == ["status.invented"]
