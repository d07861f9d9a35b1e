"""Reads what PyTorch's flight recorder wrote at this pod's processes, as far as the culprit needs.

The files are the trainer's, so they are read as data and never executed, with caps on bytes,
operations and seconds. Must never hold up the event loop, nor fail over a file.

Source of the format: PyTorch's FlightRecorder.hpp and FlightRecorderDetail.hpp (keys of `entries`,
`pg_status`, `pg_config`), versions 2.0 to 2.10 of its dump; the JSON form has the same keys.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rtj_api.rules.flight import Call, Flight, Group
from rtj_api.wire import CallView, FlightFile, FlightGroup, FlightView

from rtj_sidecar.checkpoints.formats import stub
from rtj_sidecar.checkpoints.formats.base import Caps, MalformedError

MOST_BYTES = 32 << 20
MOST_ENTRIES = 20_000
MOST_GROUPS = 16  # of one process, those that wait first
MOST_TEXT = 120
CAPS = Caps(pickle_bytes=MOST_BYTES, pickle_operations=4_000_000, pickle_seconds=10.0)
_COMPLETED = "completed"


def flight_of(data: bytes, *, process: int) -> Flight | None:
    """What a dump says; None where it is none, or too large to be looked at."""
    try:
        value = _parsed(data)
        # Text of a number with very many digits, or of lists in lists without end, is refused too.
        return Flight(process=process, groups=_groups(value)) if isinstance(value, dict) else None
    except (MalformedError, ValueError, RecursionError, MemoryError):
        return None


def _parsed(data: bytes) -> Any:
    if len(data) > MOST_BYTES:
        raise ValueError("too large")
    if data[:1] in (b"{", b" ", b"\n"):
        return json.loads(data)
    return stub.load(data, caps=CAPS)


def _groups(dump: Mapping[Any, Any]) -> tuple[Group, ...]:
    entries = dump.get("entries")
    status = dump.get("pg_status")
    by_id = dict(status) if isinstance(status, dict) else {}
    ranks = _ranks(dump.get("pg_config"))
    open_: dict[str, dict[int, Call]] = {}
    begun: dict[str, int] = {}
    ended: dict[str, int] = {}
    named: dict[str, str] = {}
    for entry in (entries if isinstance(entries, list) else [])[-MOST_ENTRIES:]:
        seq = entry.get("collective_seq_id") if isinstance(entry, dict) else None
        if not isinstance(seq, int) or entry.get("is_p2p") is True:
            continue
        number, name = str(entry.get("pg_id")), _name(entry, ranks)
        named[number] = name
        done = _has_ended(entry, by_id.get(number), seq=seq)
        begun[name] = max(begun.get(name, 0), seq)
        if done:
            ended[name] = max(ended.get(name, 0), seq)
        else:
            op, sizes = entry.get("profiling_name"), entry.get("input_sizes")
            open_.setdefault(name, {})[seq] = Call(
                seq=seq, op=_text(op), sizes=_text(sizes if isinstance(sizes, list) else "")
            )
    for number, told in by_id.items():
        name = named.get(str(number), str(number)[:MOST_TEXT])
        if isinstance(told, dict):
            begun[name] = max(begun.get(name, 0), _whole(told.get("last_enqueued_collective")))
            ended[name] = max(ended.get(name, 0), _whole(told.get("last_completed_collective")))
    groups = [
        Group(
            name=name,
            begun=begun[name],
            ended=ended.get(name, 0),
            open=open_[name][min(open_[name])] if name in open_ else None,
        )
        for name in sorted(begun)
    ]
    return tuple(sorted(groups, key=lambda g: (g.open is None, g.name))[:MOST_GROUPS])


def _ranks(config: Any) -> dict[str, str]:
    """By a group's name: its members, as text."""
    if not isinstance(config, dict):
        return {}
    return {
        str(name): _text(told.get("ranks"))
        for name, told in config.items()
        if isinstance(told, dict)
    }


def _name(entry: Mapping[Any, Any], ranks: Mapping[str, str]) -> str:
    """The same at all its members: its name and description, and its members where they are told
    (groups apart from each other may bear one name)."""
    told = entry.get("process_group")
    words = [str(w) for w in told] if isinstance(told, list | tuple) else [str(entry.get("pg_id"))]
    members = ranks.get(words[0], "") if words else ""
    return _text(" ".join(w for w in (*words, members) if w))


def _has_ended(entry: Mapping[Any, Any], status: Any, *, seq: int) -> bool:
    """Gloo never tells a state but retires what has ended; NCCL's watchdog retires what it gives
    up as well, which is no end."""
    if entry.get("state") == _COMPLETED:
        return True
    if entry.get("retired") is not True:
        return False
    last = status.get("last_completed_collective") if isinstance(status, dict) else None
    return not isinstance(last, int) or last < 0 or seq <= last


def _whole(value: Any) -> int:
    return max(0, value) if isinstance(value, int) else 0


def _text(value: Any) -> str:
    if isinstance(value, list) and len(value) > 8:
        value = [*value[:8], "…"]
    return str(value)[:MOST_TEXT] if value not in (None, "") else ""


def view_of(flight: Flight) -> FlightView:
    return FlightView(
        process=flight.process,
        groups=[
            FlightGroup(
                name=group.name,
                begun=group.begun,
                ended=group.ended,
                open=CallView(seq=group.open.seq, op=group.open.op, sizes=group.open.sizes)
                if group.open is not None
                else None,
            )
            for group in flight.groups
        ],
    )


@dataclass
class FlightReader:
    """`look` is called from the event loop; the reading is done by a thread, one at a time."""

    views: list[FlightView] = field(default_factory=list)
    _known: list[FlightFile] = field(default_factory=list)
    _thread: threading.Thread | None = None

    async def look(
        self, run: Path, files: Sequence[FlightFile], *, patience: float = 0.0
    ) -> list[FlightView]:
        """What is known of these files by now, or after so many seconds."""
        is_busy = self._thread is not None and self._thread.is_alive()
        if list(files) != self._known and not is_busy:
            self._known = list(files)
            if not files:
                self.views = []
                return self.views
            self._thread = threading.Thread(
                target=self._read, args=(run, list(files)), daemon=True, name="flights"
            )
            self._thread.start()
        if patience and self._thread is not None:
            await asyncio.to_thread(self._thread.join, patience)
        return self.views

    def _read(self, run: Path, files: list[FlightFile]) -> None:
        found = []
        for one in files:
            data = _content(run, one.file)
            flight = flight_of(data, process=one.process) if data is not None else None
            if flight is not None:
                found.append(view_of(flight))
        self.views = found


def _content(run: Path, name: str) -> bytes | None:
    """The trainer may write there as well: nothing but a plain file in that folder is opened."""
    place = Path(name)
    if place.is_absolute() or ".." in place.parts:
        return None
    try:
        descriptor = os.open(run / place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        try:
            data = file.read(MOST_BYTES + 1)
        except OSError:
            return None
    return data if len(data) <= MOST_BYTES else None
