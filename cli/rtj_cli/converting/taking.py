"""A manifest that is read field by field, so that what was not read is known. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Notes:
    """What a person has to know: `dropped` with the field and why, `questions` to answer."""

    dropped: list[str] = field(default_factory=list)
    carried: list[str] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)


@dataclass
class Taking:
    """An object of the manifest and which of its fields have been dealt with."""

    data: Mapping[str, Any]
    path: str
    notes: Notes
    taken: set[str] = field(default_factory=set)

    def take(self, key: str, default: Any = None) -> Any:
        """The value, whose meaning the caller carries over."""
        self.taken.add(key)
        value = self.data.get(key)
        return default if value is None else value

    def below(self, key: str) -> Taking:
        """An object of which each field is dealt with in turn."""
        self.taken.add(key)
        value = self.data.get(key)
        found = value if isinstance(value, Mapping) else {}
        return Taking(found, f"{self.path}.{key}".removeprefix("."), self.notes)

    def drop(self, key: str, why: str) -> None:
        """Not carried over; said where it is there."""
        self.taken.add(key)
        if self.data.get(key) not in (None, {}, [], ""):
            self.notes.dropped.append(f"{self.path}.{key}".removeprefix(".") + f": {why}")

    def rest(self, why: str = "has no counterpart") -> None:
        """All that nobody asked for."""
        for key in self.data:
            if key not in self.taken:
                self.drop(key, why)
