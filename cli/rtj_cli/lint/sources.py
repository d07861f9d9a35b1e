"""YAML with its lines: where each field of each document stands. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from rtj_cli.lint.schema import Path

_SOURCE = re.compile(r"^# Source: (\S+)", re.MULTILINE)


class BadYaml(Exception):
    """The text is no YAML; `line` counts from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True)
class Document:
    """`line` of its beginning. `source`: the template that helm made it of."""

    data: Any
    line: int
    lines: dict[Path, int]
    twice: tuple[Path, ...] = ()
    source: str | None = None

    def line_of(self, path: Path) -> int:
        """Of the field, or of the nearest thing around it that is there."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, self.line)


@dataclass
class _Positions:
    lines: dict[Path, int] = field(default_factory=dict)
    twice: list[Path] = field(default_factory=list)

    def walk(self, node: yaml.Node, path: Path) -> None:
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                below = (*path, str(key.value))
                if key.value in seen:
                    self.twice.append(below)
                seen.add(key.value)
                self.lines[below] = key.start_mark.line + 1
                self.walk(value, below)
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self.walk(item, (*path, index))


def documents(text: str) -> Iterator[Document]:
    """Raises BadYaml."""
    loader = yaml.SafeLoader(text)
    rows = text.splitlines()
    before = 0
    try:
        while loader.check_node():
            node = loader.get_node()
            positions = _Positions()
            positions.walk(node, ())
            begin = node.start_mark.line
            told = _SOURCE.findall("\n".join(rows[before : begin + 1]))
            before = node.end_mark.line
            yield Document(
                data=loader.construct_document(node),
                line=begin + 1,
                lines=positions.lines,
                twice=tuple(positions.twice),
                source=told[-1] if told else None,
            )
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or "no YAML"
        raise BadYaml(str(what), 1 if mark is None else mark.line + 1) from None
    finally:
        loader.dispose()
