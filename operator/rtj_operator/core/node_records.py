"""The node ledger as it is kept: the data of one ConfigMap, a key a node, short JSON in it.

A person can read it with kubectl, and forgives a node by removing its key. Must never drop what it
cannot read without saying so. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from rtj_api.status import Time, format_time

from rtj_operator.core.node_ledger import MAX_MARKS, MAX_TEXT, Mark, NodeLedger

_LATEST = 253_402_300_799.0  # the end of the year 9999, Unix seconds: beyond it no time is written


class _Mark(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    id: str = Field(max_length=MAX_TEXT)
    at: Time
    weight: float = Field(ge=0, le=100)
    reason: str = Field(max_length=MAX_TEXT)
    job: str = Field("", max_length=512)
    gpu: str | None = Field(None, max_length=MAX_TEXT)


class _Node(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    marks: list[_Mark] = Field(max_length=10 * MAX_MARKS)


def read(data: Mapping[str, str]) -> tuple[NodeLedger, dict[str, str]]:
    """The ledger; and by key what in it cannot be read, with why."""
    marks: dict[str, tuple[Mark, ...]] = {}
    unreadable: dict[str, str] = {}
    for node, text in data.items():
        try:
            found = _Node.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the whole"
            unreadable[node] = f"{where}: {first['msg']}"
            continue
        except OverflowError:
            unreadable[node] = "marks: a number without an end"
            continue
        if any(not 0 <= m.at <= _LATEST for m in found.marks):
            unreadable[node] = "marks.at: a time in seconds since 1970, or as 2026-01-31T12:00:00Z"
            continue
        marks[node] = tuple(Mark(node=node, **m.model_dump()) for m in found.marks)
    return NodeLedger(marks=marks), unreadable


def written(ledger: NodeLedger) -> dict[str, str]:
    """The data of the ConfigMap."""
    return {
        node: json.dumps({"marks": [_row(m) for m in marks]}, separators=(",", ":"))
        for node, marks in ledger.marks.items()
    }


def _row(mark: Mark) -> dict[str, Any]:
    row = {
        "id": mark.id[:MAX_TEXT],
        "at": format_time(float(int(mark.at))),
        "weight": mark.weight,
        "reason": mark.reason[:MAX_TEXT],
        "job": mark.job,
        "gpu": mark.gpu,
    }
    return {name: value for name, value in row.items() if value not in (None, "")}
