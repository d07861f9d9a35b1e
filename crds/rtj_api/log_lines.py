"""Logs as JSON lines with fields that stay: one form for the operator and the sidecar.

A field is added, never renamed; index templates and docs are made of FIELDS. A line is one record
whatever stands in its values: what a reader might take for a line's end, or a terminal for an
order, is escaped. Must never fail on a value that JSON does not know, and must never print a header
or a body of a request.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

# Of the standard LogRecord; all else was given as `extra`.
STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
# DEL and C1 (a terminal obeys U+009B as ESC [), line ends beyond \n, marks that reorder text.
_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Kind(StrEnum):
    """What an index has to know of a field."""

    TIME = "time"  # ISO 8601, UTC, milliseconds
    WORD = "word"  # looked up whole
    TEXT = "text"  # searched by its words
    WHOLE = "whole"
    NUMBER = "number"
    WORDS = "words"  # a list of texts
    OBJECT = "object"  # keys that differ from rule to rule; values are text


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    kind: Kind
    meaning: str


FIELDS: tuple[Field, ...] = (
    Field("time", Kind.TIME, "When it was logged; UTC, ISO 8601 with milliseconds."),
    Field("level", Kind.WORD, "debug, info, warning, error or critical."),
    Field("component", Kind.WORD, "operator or sidecar."),
    Field("logger", Kind.WORD, "The module that logged."),
    Field("message", Kind.TEXT, "What happened. The operator's are few fixed words."),
    Field("exception", Kind.TEXT, "The traceback of an error; line ends are escaped."),
    Field("job", Kind.WORD, "namespace/name of the job it is about."),
    Field("uid", Kind.WORD, "UID of the job, or of the cluster at the start."),
    Field("pod_uid", Kind.WORD, "UID of the pod it is about."),
    Field("attempt", Kind.WHOLE, "The job's attempt after this plan."),
    Field("rule", Kind.WORD, "The rule that made the plan, see decisions.md."),
    Field("why", Kind.TEXT, "Why, in words."),
    Field("evidence", Kind.OBJECT, "What the rule saw."),
    Field("actions", Kind.WORDS, "What was done."),
    Field("apply_seconds", Kind.NUMBER, "How long it took to do it."),
    Field(
        "since_observed_seconds", Kind.NUMBER, "From the reading of the world until it was done."
    ),
    Field("in", Kind.NUMBER, "Seconds until the job is looked at again."),
    Field("node", Kind.WORD, "The node it is about."),
    Field("reason", Kind.WORD, "A reason of reasons.md."),
    Field("weight", Kind.NUMBER, "Of a node's mark."),
    Field("note", Kind.TEXT, "The text of an event that was not posted."),
    Field("url", Kind.WORD, "The address of a sidecar that did not take a directive."),
    Field("lease", Kind.WORD, "namespace/name of the leader's Lease."),
    Field("leader", Kind.WORD, "The replica that leads."),
    Field("after", Kind.WORD, "The replica that led before."),
    Field("version", Kind.WORD, "The API server's version, at the start."),
    Field("may_not", Kind.TEXT, "What no Role allows: verb, resource and API group."),
    Field("remedy", Kind.TEXT, "What to do about it."),
)
FIRST = ("time", "level", "component", "logger", "message", "exception")


class JsonLines(logging.Formatter):
    """One JSON object a line. `constant` fields stand in every line; what a record brings as
    `extra` can replace none of FIRST."""

    def __init__(self, *, component: str, constant: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._component = component
        self._constant = dict(constant or {})

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "component": self._component,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        more = {k: v for k, v in vars(record).items() if k not in STANDARD and k[:1] != "_"}
        text = json.dumps({**self._constant, **more, **line}, default=str, ensure_ascii=False)
        return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
