"""A line of the log is one record, whatever somebody puts into a value."""

from __future__ import annotations

import ast
import configparser
import json
import logging
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from kit.log_records import unknown_fields
from rtj_api.log_lines import FIELDS, FIRST, JsonLines, Kind

ROOT = Path(__file__).resolve().parents[3]
FORGED = '{"time":"2026-01-01T00:00:00.000+00:00","level":"info","message":"decided"}'


def line(message: str = "m", *, error: BaseException | None = None, **extra: Any) -> str:
    told = (type(error), error, None) if error is not None else None
    record = logging.LogRecord("rtj", logging.INFO, "", 0, message, (), told)
    vars(record).update(extra)
    return JsonLines(component="sidecar", constant={"job": "ns/gpt"}).format(record)


@pytest.mark.parametrize(
    "end", ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\x00"]
)
def test_a_value_cannot_begin_a_record_of_its_own(end: str) -> None:
    hostile = f"x{end}{FORGED}"
    written = line(hostile, why=hostile, evidence={hostile: hostile})
    assert written.splitlines() == [written]
    read = json.loads(written)
    assert (read["message"], read["why"], read["evidence"]) == (
        hostile,
        hostile,
        {hostile: hostile},
    )


@pytest.mark.parametrize("order", ["\x1b[2J", "\x9b2J", "\x7f", "\u202e", "\u2066"])
def test_a_value_orders_a_terminal_nothing(order: str) -> None:
    written = line(order)
    assert order not in written
    assert written.isprintable()
    assert json.loads(written)["message"] == order


def test_words_of_other_languages_stay_readable() -> None:
    assert "geprüft: 模型" in line("geprüft: 模型")


def test_what_a_record_brings_replaces_none_of_the_first_fields() -> None:
    plain = json.loads(line("m", error=ValueError("no")))
    lies = dict.fromkeys(set(FIRST) - {"message"}, "forged")
    assert json.loads(line("m", error=ValueError("no"), **lies)) == plain
    assert plain["exception"] == "ValueError: no"


def test_a_line_says_when_in_a_form_that_sorts() -> None:
    told = datetime.fromisoformat(json.loads(line())["time"])
    assert told.utcoffset() is not None
    assert told.utcoffset().total_seconds() == 0  # type: ignore[union-attr]


def extras_of(source: str) -> set[str]:
    """Keys of each literal `extra={…}`."""
    return {
        key.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.keyword)
        and node.arg == "extra"
        and isinstance(node.value, ast.Dict)
        for key in node.value.keys
        if isinstance(key, ast.Constant)
    }


def test_every_field_that_the_code_logs_is_in_the_table() -> None:
    found: set[str] = set()
    for part in ("operator/rtj_operator", "trainer_sidecar/rtj_sidecar"):
        for path in (ROOT / part).rglob("*.py"):
            found |= extras_of(path.read_text())
    assert {"why", "rule", "evidence"} <= found
    assert found <= {field.name for field in FIELDS}
    assert {field.name for field in FIELDS} - set(FIRST) <= found


def test_a_field_beyond_the_table_or_of_another_kind_is_found() -> None:
    assert unknown_fields(line("m", why="w", attempt=3, evidence={"a": "1"})) == []
    assert unknown_fields(line("m", whim="w")) == ["whim"]
    assert unknown_fields(line("m", attempt="three")) == ["attempt"]
    assert unknown_fields("Traceback (most recent call last):") == ["no JSON"]


def test_the_templates_know_every_field() -> None:
    elastic = json.loads(
        (ROOT / "integrations" / "elasticsearch" / "index-template.json").read_text()
    )
    properties = elastic["template"]["mappings"]["properties"]
    assert list(properties) == [field.name for field in FIELDS]
    assert {properties[f.name]["type"] for f in FIELDS if f.kind is Kind.TIME} == {"date"}
    splunk = configparser.ConfigParser(interpolation=None)
    splunk.read(ROOT / "integrations" / "splunk" / "props.conf")
    stanza = splunk["resumable_training:json"]
    assert (stanza["INDEXED_EXTRACTIONS"], stanza["TIMESTAMP_FIELDS"]) == ("json", "time")
    told = json.loads(line())["time"]
    form = stanza["TIME_FORMAT"].replace(".%3N", ".%f").replace("%:z", "%z")
    assert datetime.strptime(told, form).astimezone() == datetime.fromisoformat(told)
