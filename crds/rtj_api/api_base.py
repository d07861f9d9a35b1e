"""What every API model is built on: the base class and the bounded text types.

Apart from `v1alpha1`, so that a group of fields can have a file of its own. Must never hold a
field of the API itself.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, StringConstraints
from pydantic.alias_generators import to_camel

ShortText = Annotated[str, StringConstraints(max_length=1024)]


class Api(BaseModel):
    """Base of every API model: camelCase, frozen; fields of a newer version are ignored."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore"
    )

    def dump(self) -> dict[str, Any]:
        """The object as JSON-ready camelCase data, absent optionals left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
