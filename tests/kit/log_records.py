"""Lines of a real log, held against the table of fields that index templates are made of."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from rtj_api.log_lines import FIELDS, Kind

_KINDS = {field.name: field.kind for field in FIELDS}


def unknown_fields(line: str) -> list[str]:
    """What of the line an index made of the templates would not take."""
    try:
        record = json.loads(line)
    except ValueError:
        return ["no JSON"]
    return [
        name for name, value in record.items() if name not in _KINDS or not _is(value, _KINDS[name])
    ]


def _is(value: Any, kind: Kind) -> bool:
    if value is None:
        return True
    match kind:
        case Kind.TIME:
            return datetime.fromisoformat(value).utcoffset() is not None
        case Kind.WHOLE:
            return type(value) is int
        case Kind.NUMBER:
            return type(value) in (int, float)
        case Kind.WORDS:
            return isinstance(value, list) and all(isinstance(each, str) for each in value)
        case Kind.OBJECT:
            return isinstance(value, dict)
        case Kind.WORD | Kind.TEXT:
            return isinstance(value, str)
