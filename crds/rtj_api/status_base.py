"""What every part of a job's status is made of: times, bounded messages, the base model.

Times are Unix seconds in Python and RFC 3339 in JSON. Must never do I/O.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel

MAX_MESSAGE = 1024  # characters of one message

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_time(value: Any) -> Any:
    """RFC 3339 or a number of Unix seconds -> Unix seconds; anything else is left to pydantic."""
    if isinstance(value, str):
        parsed = datetime.fromisoformat(value)
        if parsed.tzinfo is None:
            raise ValueError(f"time without a zone: {value!r}")
        return (parsed - _EPOCH) / timedelta(microseconds=1) / 1e6
    return value


def format_time(value: float) -> str:
    """Unix seconds -> RFC 3339 in UTC; microseconds are shown unless they are zero."""
    moment = _EPOCH + timedelta(microseconds=round(value * 1e6))
    return moment.isoformat().replace("+00:00", "Z")


def _to_micros(value: float) -> float:
    return round(value * 1e6) / 1e6


def _to_seconds(value: float) -> float:
    return float(math.floor(value))


def _bounded(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"


_SCHEMA = WithJsonSchema({"type": "string", "format": "date-time"})
_SERIALIZE = PlainSerializer(format_time, return_type=str, when_used="json")
Time = Annotated[
    float, BeforeValidator(parse_time), AfterValidator(_to_micros), _SERIALIZE, _SCHEMA
]
# metav1.Time has whole seconds: what other tools read as a condition's time.
WholeTime = Annotated[
    float, BeforeValidator(parse_time), AfterValidator(_to_seconds), _SERIALIZE, _SCHEMA
]
# A Reason's value. Any string is read, so that a status written by a newer version still loads.
ReasonValue = Annotated[
    str, AfterValidator(str), WithJsonSchema({"type": "string", "maxLength": 64})
]
Message = Annotated[
    str, AfterValidator(_bounded), WithJsonSchema({"type": "string", "maxLength": MAX_MESSAGE})
]


def or_else(values: type[StrEnum], otherwise: StrEnum) -> BeforeValidator:
    """A word that only a newer version knows is read as `otherwise`: a status that cannot be read
    at all would leave its job without an operator."""
    known = {str(value) for value in values}
    return BeforeValidator(lambda told: told if str(told) in known else otherwise)


class StatusModel(BaseModel):
    """Base: camelCase in JSON, frozen, unknown fields of a newer version ignored."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore"
    )
