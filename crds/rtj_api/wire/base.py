"""The base of every message, and the rule for adjacent versions.

Readers ignore unknown fields, and unknown words of a list of words; writers only add. So two
adjacent versions can serve one gang.
Must never do I/O.
"""

from __future__ import annotations

from typing import Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel

_UNKNOWN_WORD = frozenset({"enum", "literal_error"})


class Wire(BaseModel):
    """Base of every message: camelCase on the wire, frozen, unknown fields ignored."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore"
    )

    @model_validator(mode="wrap")
    @classmethod
    def _without_unknown_words(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """An enumeration's value that only a later version knows counts as absent, and with it what
        cannot be without it; where that is all of the message, it is refused."""
        try:
            return handler(value)
        except ValidationError as error:
            places = [e["loc"] for e in error.errors(include_url=False, include_input=False)]
            is_word = all(e["type"] in _UNKNOWN_WORD for e in error.errors(include_url=False))
            if not is_word or not isinstance(value, dict) or not all(places):
                raise
            try:
                return handler(_without(value, places))
            except ValidationError:
                raise error from None

    def dump(self) -> dict[str, Any]:
        """The message as JSON-ready camelCase data, absent optionals left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def dump_json(self) -> str:
        return self.model_dump_json(by_alias=True, exclude_none=True)


def _without(value: dict[str, Any], places: list[tuple[int | str, ...]]) -> dict[str, Any]:
    """Without what lies at these places: a field, or one element of a field that is a list."""
    left = dict(value)
    elements: dict[str, set[int]] = {}
    for place in places:
        name = str(place[0])
        if len(place) > 1 and isinstance(value.get(name), list) and isinstance(place[1], int):
            elements.setdefault(name, set()).add(place[1])
        else:
            left.pop(name, None)
    for name, bad in elements.items():
        left[name] = [one for at, one in enumerate(value[name]) if at not in bad]
    return left
