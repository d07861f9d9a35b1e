"""The base of every message, and the rule for adjacent versions.

Readers ignore unknown fields and writers only add, so two adjacent versions can serve one gang.
Must never do I/O.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Wire(BaseModel):
    """Base of every message: camelCase on the wire, frozen, unknown fields ignored."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore"
    )

    def dump(self) -> dict[str, Any]:
        """The message as JSON-ready camelCase data, absent optionals left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def dump_json(self) -> str:
        return self.model_dump_json(by_alias=True, exclude_none=True)
