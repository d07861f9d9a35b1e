"""What one rule is, and how it stands in a schema. Must never hold a rule of the API itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Rule:
    """One CEL rule. `message` says what is wrong and what to write instead."""

    name: str
    rule: str
    message: str

    def dump(self) -> dict[str, str]:
        return {"rule": " ".join(self.rule.split()), "message": self.message}


def rules(*found: Rule) -> dict[str, Any]:
    """The schema extension that holds these rules."""
    return {"x-kubernetes-validations": [rule.dump() for rule in found]}


def immutable(field: str, *, remedy: str) -> Rule:
    return Rule(
        f"{field.lower().replace('.', '-')}-immutable",
        "self == oldSelf",
        f"{field} cannot be changed: {remedy}",
    )


SAME_RUN = (
    "the saves of this run are bound to it. Delete the job and apply it anew; with the same runID "
    "it goes on from the newest save"
)
"""Why what names a run cannot be changed, and what to do instead."""
