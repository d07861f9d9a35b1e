"""What NCCL's watchdog prints of the operation in which its process waited too long.

Where no dump of the flight recorder is had, these lines say the same of one group. Patterns hold no
nested repetition and see bounded lines. Pure.

Source: PyTorch's ProcessGroupNCCL.cpp from 2.0 on: `Watchdog caught collective operation timeout:
WorkNCCL(SeqNum=…, OpType=…, …)`; `last enqueued NCCL work: …, last completed NCCL work: …`, later
without `NCCL`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from rtj_api.rules.flight import Call, Flight, Group

MAX_LINES, MAX_LINE = 400, 600
_RANK = re.compile(r"\[(?:PG[^\]]{0,80} )?Rank (\d{1,6})\]", re.I)
_GROUP = re.compile(r"\[PG (?:ID )?(\w{1,40})", re.I)
_WORK = re.compile(r"WorkNCCL\(SeqNum=(\d{1,12}), OpType=(\w{1,40})(.{0,200})")
_SIZE = re.compile(r"NumelIn=(\d{1,18})")
_LIMIT = re.compile(r"Timeout\(ms\)=(\d{1,12})")
_STATUS = re.compile(
    r"last enqueued (?:NCCL )?work: (-?\d{1,12}), last completed (?:NCCL )?work: (-?\d{1,12})", re.I
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited:
    """`process`: its rank in the whole job; None where the line tells none."""

    process: int | None
    seq: int
    op: str
    limit_seconds: float | None = None

    @property
    def text(self) -> str:
        who = f"process {self.process}" if self.process is not None else "the process"
        limit = f" for {self.limit_seconds:.0f} s" if self.limit_seconds is not None else ""
        return f"by NCCL's watchdog {who} waited{limit} in {self.op} (number {self.seq})"


def waited(lines: Iterable[str]) -> Waited | None:
    """The first operation that was given up, by the last lines of a log, oldest first."""
    for line in _bounded(lines):
        work = _WORK.search(line) if "atchdog" in line else None
        if work is None:
            continue
        limit = _LIMIT.search(work[3])
        return Waited(
            process=_process(line),
            seq=int(work[1]),
            op=work[2],
            limit_seconds=int(limit[1]) / 1000 if limit is not None else None,
        )
    return None


def flights(lines: Iterable[str]) -> tuple[Flight, ...]:
    """By process: what the lines say of the group that they name; empty where they say nothing."""
    begun: dict[tuple[int, str], int] = {}
    ended: dict[tuple[int, str], int] = {}
    open_: dict[tuple[int, str], Call] = {}
    for line in _bounded(lines):
        process = _process(line)
        if process is None:
            continue
        group = _GROUP.search(line)
        key = (process, group[1] if group is not None else "")
        if (status := _STATUS.search(line)) is not None:
            begun[key] = max(begun.get(key, 0), int(status[1]))
            ended[key] = max(ended.get(key, 0), int(status[2]))
        if (work := _WORK.search(line)) is not None and "atchdog" in line:
            size = _SIZE.search(work[3])
            call = Call(seq=int(work[1]), op=work[2], sizes=size[1] if size is not None else "")
            open_.setdefault(key, call)
            begun[key] = max(begun.get(key, 0), call.seq)
    found: dict[int, list[Group]] = {}
    for key in sorted(begun):
        process, name = key
        found.setdefault(process, []).append(
            Group(name=name, begun=begun[key], ended=ended.get(key, 0), open=open_.get(key))
        )
    return tuple(Flight(process=process, groups=groups) for process, groups in found.items())


def _process(line: str) -> int | None:
    rank = _RANK.search(line)
    return int(rank[1]) if rank is not None else None


def _bounded(lines: Iterable[str]) -> list[str]:
    return [line[:MAX_LINE] for line in list(lines)[-MAX_LINES:]]
