"""A large file whose upload is put aside goes on by the pieces that the service has."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from rtj_sidecar.stores.answers import NoSuchUpload
from rtj_sidecar.stores.base import Cancelled, StoreProblem
from rtj_sidecar.stores.objects import ObjectStore
from rtj_sidecar.stores.service import Piece

MIB = 1 << 20
PIECES = 40  # so that some are left when the upload is put aside
SIZE = PIECES * MIB


class Session:
    def __init__(self, service: Service, key: str) -> None:
        self._service, self._key = service, key
        self.blocks: dict[int, bytes] = {}
        self.hashed_bytes = 0
        self.is_over = False

    def hashed(self, block: memoryview) -> None:
        self.hashed_bytes += len(block)

    def digest(self) -> str:
        return str(self.hashed_bytes)

    def send(self, piece: Piece) -> None:
        assert piece.digest == str(piece.end), "of the file up to there"
        if self.is_over:
            raise NoSuchUpload(self._key)
        self._service.before(piece.number)
        self.blocks[piece.number] = piece.content()
        self._service.sent.append(piece.number)

    def finish(self, pieces: list[Piece]) -> str:
        self._service.objects[self._key] = b"".join(self.blocks[p.number] for p in pieces)
        return "etag"

    def again(self) -> bool:
        self.hashed_bytes = 0
        return self._service.goes_on

    def abort(self) -> None:
        self.is_over = True
        self._service.aborted += 1


class Service:
    """Keeps pieces of 1 MiB. `before(number)` may set a cancel, or raise."""

    url = "double://b"
    read_size = MIB

    def __init__(self, *, parallel: bool) -> None:
        self.parallel = parallel
        self.goes_on = True
        self.objects: dict[str, bytes] = {}
        self.sessions: list[Session] = []
        self.sent: list[int] = []
        self.aborted = 0
        self.before: Any = lambda number: None

    def piece_size(self, size: int) -> int:
        return MIB

    held = piece_size

    def begin(self, key: str, size: int) -> Session:
        self.sessions.append(Session(self, key))
        return self.sessions[-1]

    def explain(self, error: Exception, *, operation: str, key: str) -> Exception:
        return error

    def close(self) -> None:
        pass


class Case:
    def __init__(self, directory: Path, *, parallel: bool) -> None:
        self.service = Service(parallel=parallel)
        self.store = ObjectStore(self.service)  # type: ignore[arg-type]
        self.file = directory / "large.bin"
        self.file.write_bytes(os.urandom(SIZE))

    def upload(self, *, cancel_at: int | None = None) -> None:
        cancel = threading.Event()

        def before(number: int) -> None:
            if number == cancel_at:
                cancel.set()

        self.service.before = before
        self.service.sent.clear()
        done = self.store.upload_file("k", self.file, cancel=cancel)
        assert done.sha256 == hashlib.sha256(self.file.read_bytes()).hexdigest()
        assert self.service.objects["k"] == self.file.read_bytes()

    def put_aside(self) -> None:
        with pytest.raises(Cancelled):
            self.upload(cancel_at=3)
        assert "k" not in self.service.objects


@pytest.fixture(params=[True, False], ids=["at once", "in order"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    return Case(tmp_path, parallel=request.param)


def test_only_what_the_service_has_not_is_sent(case: Case) -> None:
    case.put_aside()
    had = set(case.service.sent)
    assert had
    if 5 not in had:
        with pytest.raises(Cancelled):
            case.upload(cancel_at=5)  # once more
    had |= set(case.service.sent)
    case.upload()
    assert set(case.service.sent) == set(range(PIECES)) - had
    assert len(case.service.sessions) == 1
    assert case.service.aborted == 0


def test_a_file_that_is_another_begins_anew(case: Case) -> None:
    case.put_aside()
    case.file.write_bytes(os.urandom(SIZE))
    os.utime(case.file, ns=(1, 1))
    case.upload()
    assert sorted(case.service.sent) == list(range(PIECES))
    assert case.service.aborted == 1


def test_so_does_one_that_the_service_has_lost(case: Case) -> None:
    case.put_aside()
    case.service.sessions[0].is_over = True
    case.upload()
    assert sorted(case.service.sent) == list(range(PIECES))


def test_what_failed_is_not_gone_on_with(case: Case) -> None:
    def refuse(number: int) -> None:
        raise StoreProblem("CredentialsRefused", "no")  # type: ignore[arg-type]

    case.put_aside()
    case.service.before = refuse
    with pytest.raises(StoreProblem):
        case.store.upload_file("k", case.file)
    case.upload()
    assert sorted(case.service.sent) == list(range(PIECES))
    assert len(case.service.sessions) == 2


def test_a_service_that_cannot_begins_anew(case: Case) -> None:
    case.service.goes_on = False
    case.put_aside()
    assert case.service.aborted == 1
    case.upload()
    assert sorted(case.service.sent) == list(range(PIECES))
