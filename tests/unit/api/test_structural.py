"""The conversion from pydantic's JSON schema to what a CRD may hold."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, Field
from rtj_api.structural import NotStructural, structural


def converted(model: type[BaseModel], **options: Any) -> dict[str, Any]:
    return structural(model.model_json_schema(), **{"defaults": True} | options)


class Inner(BaseModel):
    """The text of the model."""

    size: int = 3


class NeedsName(BaseModel):
    name: str


def test_references_are_written_out_and_the_text_beside_them_wins() -> None:
    class Outer(BaseModel):
        plain: Inner
        described: Inner = Field(description="The text of the field.")

    found = converted(Outer)
    assert "$defs" not in found
    plain, described = found["properties"]["plain"], found["properties"]["described"]
    assert plain["description"] == "The text of the model."
    assert described["description"] == "The text of the field."
    assert plain["properties"]["size"] == {"default": 3, "type": "integer"}


def test_null_is_dropped_and_gets_no_default() -> None:
    class Outer(BaseModel):
        number: int | None = Field(None, ge=1)
        part: Inner | None = None

    properties = converted(Outer)["properties"]
    assert properties["number"] == {"minimum": 1, "type": "integer"}
    assert "default" not in properties["part"]


def test_an_object_of_defaults_defaults_to_empty_so_that_they_are_filled_in() -> None:
    class Middle(BaseModel):
        inner: Inner = Field(default_factory=Inner)

    class Outer(BaseModel):
        middle: Middle = Field(default_factory=Middle)
        named: NeedsName

    properties = converted(Outer)["properties"]
    assert properties["middle"]["default"] == {}
    assert properties["middle"]["properties"]["inner"]["default"] == {}
    assert "default" not in properties["named"]


def test_a_status_gets_no_defaults_at_all() -> None:
    class Outer(BaseModel):
        inner: Inner = Field(default_factory=Inner)
        count: int = 0

    assert "default" not in str(converted(Outer, defaults=False))


def test_lists_say_how_they_merge() -> None:
    class Outer(BaseModel):
        words: list[str] = Field(default_factory=list)
        things: list[NeedsName] = Field(default_factory=list)

    keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    properties = converted(Outer, lists={".things": keyed})["properties"]
    assert properties["words"]["x-kubernetes-list-type"] == "atomic"
    assert properties["things"] | keyed == properties["things"]


def test_int_or_str_is_a_quantity() -> None:
    class Outer(BaseModel):
        limits: dict[str, int | str]

    values = converted(Outer)["properties"]["limits"]["additionalProperties"]
    assert values["x-kubernetes-int-or-string"] is True
    assert values["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    assert "type" not in values


def test_exclusive_bounds_take_the_form_of_openapi_3_0() -> None:
    class Outer(BaseModel):
        share: float = Field(gt=0, lt=1)

    assert converted(Outer)["properties"]["share"] == {
        "type": "number",
        "minimum": 0,
        "exclusiveMinimum": True,
        "maximum": 1,
        "exclusiveMaximum": True,
    }


def test_free_objects_keep_unknown_fields() -> None:
    class Outer(BaseModel):
        anything: dict[str, Any]

    assert converted(Outer)["properties"]["anything"] == {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
    }


def test_a_union_that_a_crd_cannot_hold_names_its_path() -> None:
    class Outer(BaseModel):
        odd: list[bool | str]

    with pytest.raises(NotStructural, match=r"\.odd\[\]"):
        converted(Outer)
