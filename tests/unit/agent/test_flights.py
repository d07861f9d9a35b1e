"""What is read of a flight recorder's dump, and what a hostile one does: nothing."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit import flights as made
from rtj_api.rules.flight import Call, Flight, Group, missing
from rtj_api.wire import FlightFile
from rtj_sidecar import flights
from rtj_sidecar.flights import FlightReader, flight_of

REAL = Path(__file__).parents[2] / "fixtures" / "flight"


def read(name: str, process: int) -> Flight:
    data = (REAL / name).read_bytes()
    found = flight_of(b64decode(data) if name.endswith(".base64") else data, process=process)
    assert found is not None
    return found


def test_a_real_dump_names_the_rank_that_is_missing() -> None:
    told = {rank: [read(f"gloo-{rank}.pickle.base64", rank)] for rank in range(3)}
    (group,) = told[0][0].groups
    assert (group.begun, group.ended) == (4, 3)
    assert group.open == Call(seq=4, op="gloo:all_reduce", sizes="[[4, 3]]")
    assert told[2][0].groups[0].open is None
    found = missing(told)
    assert found is not None
    assert (found.rank, found.is_mismatch) == (2, False)


def test_the_json_form_says_the_same() -> None:
    assert read("gloo-0.json", 0) == read("gloo-0.pickle.base64", 0)


def test_a_dump_of_nccl() -> None:
    found = flight_of(made.waiting(7), process=3)
    assert found is not None
    assert found.process == 3
    (group,) = found.groups
    assert group == Group(
        name="0 default_pg [0, 1, 2]",
        begun=7,
        ended=6,
        open=Call(seq=7, op="nccl:all_reduce", sizes="[[4, 3]]"),
    )


def test_what_the_watchdog_gave_up_has_not_ended() -> None:
    entries = [made.entry(1), made.entry(2, state="started", retired=True)]
    found = flight_of(pickle.dumps(made.dump(entries, begun=2, ended=1)), process=0)
    assert found is not None
    assert found.groups[0].open is not None


def test_messages_between_two_ranks_are_no_collective() -> None:
    entries = [made.entry(1), made.entry(9, state="started", is_p2p=True)]
    found = flight_of(pickle.dumps(made.dump(entries, begun=1, ended=1)), process=0)
    assert found is not None
    assert found.groups[0].open is None


def test_only_what_is_active_may_be_dumped() -> None:
    """TORCH_INCLUDE_ONLY_ACTIVE: a rank that waits in none has no entries."""
    found = flight_of(pickle.dumps(made.dump([], begun=6, ended=6)), process=0)
    assert found is not None
    assert [(g.begun, g.open) for g in found.groups] == [(6, None)]


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.path),)


def cyclic() -> bytes:
    value: dict[str, Any] = {"entries": []}
    value["entries"].append(value)
    value["pg_status"] = value
    value["pg_config"] = value
    return pickle.dumps(value)


HOSTILE = {
    "nothing": b"",
    "text": b"hello",
    "cut off": made.waiting(7)[:200],
    "cyclic": cyclic(),
    "a list": pickle.dumps([1, 2]),
    "wrong kinds": pickle.dumps({"entries": {"a": 1}, "pg_status": 7, "pg_config": [1]}),
    "odd entries": pickle.dumps(
        {"entries": [None, 7, {"collective_seq_id": "x"}, {"collective_seq_id": 10**30}]}
    ),
    "deep json": b"[" * 200_000,
    "deep json object": b'{"a":' * 100_000,
    "a bomb": b"\x80\x02]q\x00" + b"(h\x00h\x00h\x00h\x00e" * 100_000 + b".",
    "a number of many digits": pickle.dumps(
        made.dump([made.entry(1, pg_id=10**5000)], begun=1, ended=1)
    ),
    "text that grows": b"\x80\x02X\x01\x00\x00\x00a" + b"\x94" * 50_000 + b".",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_dump_is_nothing_or_harmless(name: str) -> None:
    found = flight_of(HOSTILE[name], process=0)
    assert found is None or all(len(g.name) <= flights.MOST_TEXT for g in found.groups)


def test_a_dump_that_would_run_something_runs_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    data = pickle.dumps({"entries": [Evil(mark), made.entry(1)], "pg_status": Evil(mark)})
    flight_of(data, process=0)
    assert not mark.exists()
    pickle.loads(pickle.dumps(Evil(mark)))
    assert mark.exists(), "the pickle does run something where it is unpickled"


def test_a_dump_beyond_the_cap_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    data = made.waiting(7)
    monkeypatch.setattr(flights, "MOST_BYTES", len(data) - 1)
    assert flight_of(data, process=0) is None


def test_the_reader_opens_plain_files_of_its_folder_only(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "flight").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(made.waiting(3))
    (run / "flight" / "1-0").write_bytes(made.waiting(7))
    (run / "flight" / "1-1").symlink_to(tmp_path / "secret")
    os.mkfifo(run / "flight" / "1-2")
    names = ["flight/1-0", "flight/1-1", "flight/1-2", "../secret", str(tmp_path / "secret")]
    files = [FlightFile(process=n, file=name, at=1.0) for n, name in enumerate(names)]
    views = asyncio.run(FlightReader().look(run, files, patience=30.0))
    assert [view.process for view in views] == [0]


def test_a_later_dump_replaces_what_was_known(tmp_path: Path) -> None:
    async def story() -> tuple[int, int, int]:
        reader, place = FlightReader(), tmp_path / "1-0"
        begun = []
        for at, data in ((1.0, made.waiting(7)), (1.0, made.waiting(8)), (2.0, made.waiting(9))):
            place.write_bytes(data)
            files = [FlightFile(process=0, file="1-0", at=at)]
            views = await reader.look(tmp_path, files, patience=30.0)
            begun.append(views[0].groups[0].begun)
        assert await reader.look(tmp_path, []) == []
        return begun[0], begun[1], begun[2]

    assert asyncio.run(story()) == (7, 7, 9)


def test_the_json_form_may_begin_with_a_blank() -> None:
    text = b"\n " + json.dumps(made.dump([made.entry(1)], begun=1, ended=1)).encode()
    assert flight_of(text, process=0) is not None
