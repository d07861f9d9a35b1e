"""How the commands speak: results on stdout in the asked form, everything else on stderr.

The exit codes are a promise to scripts, the same for every command but `run`. Must never print a
result and words about it on one stream.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum, StrEnum
from typing import Any

import typer
import yaml
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

# Control characters of ASCII and of Latin-1, other line ends, marks of direction.
_ORDERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
note = Console(stderr=True, highlight=False, soft_wrap=True)


class Code(IntEnum):
    """What a command ends with. 130: interrupted."""

    OK = 0
    INVALID = 1  # something that was asked about is not whole, or cannot be accepted
    USAGE = 2
    NOT_FOUND = 3  # no such run, save, job or directory
    REFUSED = 4  # it would break a promise: the message says which, and what to do
    UNREACHABLE = 5  # store or cluster do not answer, or refuse the credentials
    LATE = 6  # what was waited for did not come in time
    OTHERWISE = 7  # … and cannot come any more
    INTERRUPTED = 130


CODES = {
    Code.OK: "done, or everything that was asked about is whole",
    Code.INVALID: "a save is torn, damaged or missing files; a manifest has errors",
    Code.USAGE: "wrong usage",
    Code.NOT_FOUND: "no such run, save, job or directory",
    Code.REFUSED: "it would break a promise; the message says which and what to do instead",
    Code.UNREACHABLE: "the store or the cluster does not answer, or refuses the credentials",
    Code.LATE: "what was waited for did not come in time",
    Code.OTHERWISE: "the job ended in another way than was waited for, or what was waited for "
    "cannot come any more",
    Code.INTERRUPTED: "interrupted",
}


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


def harmless(text: str) -> str:
    """`text` with what orders a terminal about, or turns the reading round, written out: a
    trainer's own words stand in messages. Line ends and tabs stay."""
    return _ORDERS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def tell(lines: Sequence[str]) -> None:
    """Text for a person, on stdout."""
    typer.echo(harmless("\n".join(lines)))


def say(text: str, *, style: str | None = None) -> None:
    note.print(harmless(f"rtj: {text}"), style=style, markup=False)


def fail(message: str, code: int = Code.USAGE) -> typer.Exit:
    say(message, style="red")
    return typer.Exit(int(code))


def show(
    rows: Sequence[Mapping[str, Any]],
    output: Output,
    *,
    columns: Mapping[str, Callable[[Mapping[str, Any]], str]],
    name: Callable[[Mapping[str, Any]], str] = lambda row: str(row["name"]),
    one: bool = False,
) -> None:
    """Rows in the asked form; `one`: a single document instead of a list."""
    data: Any = rows[0] if one else list(rows)
    if output is Output.JSON:
        typer.echo(json.dumps(data, indent=2, ensure_ascii=False))
    elif output is Output.YAML:
        typer.echo(yaml.safe_dump(data, sort_keys=False, allow_unicode=True).rstrip())
    elif output is Output.NAME:
        for row in rows:
            typer.echo(name(row))
    elif rows:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            table.add_column(column, overflow="fold", no_wrap=column not in ("why", "file"))
        for row in rows:
            cells = (harmless(cell(row)) for cell in columns.values())
            table.add_row(*(text.replace("[", r"\[") for text in cells))
        print_table(table)


def print_table(table: Table) -> None:
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 200
    Console(width=width).print(table)


def size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def bars_on(console: Console, *, disable: bool = False) -> Progress:
    """Bars of bytes that vanish when they end. By rich, which prints the tables too."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, transient=True, disable=disable)


@contextmanager
def progress_of(what: str, *, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on stderr while bytes move; nothing where that is no terminal. The function takes the
    bytes since the last call, from any thread."""
    with bars_on(note, disable=not note.is_terminal) as bars:
        bar = bars.add_task(what, total=total)
        yield lambda count: bars.advance(bar, count)
