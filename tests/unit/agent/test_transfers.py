"""How far what is on its way is, by a clock of the test's own."""

from __future__ import annotations

import pytest
from rtj_api.rules.news import is_news
from rtj_api.wire import Report, TransferKind, TransferView
from rtj_sidecar.transfers import RATE_SECONDS, Transfers


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def transfers(clock: Clock) -> Transfers:
    return Transfers(clock=clock, now=lambda: 1e9)


def only(transfers: Transfers) -> TransferView:
    (view,) = transfers.views()
    return view


def test_it_tells_how_far_and_how_long(transfers: Transfers, clock: Clock) -> None:
    counted: list[int] = []
    with transfers.under_way(TransferKind.UPLOAD, "f1-n1-s1", 1000, also=counted.append) as count:
        assert only(transfers) == TransferView(
            kind=TransferKind.UPLOAD, name="f1-n1-s1", bytes_done=0, bytes_total=1000, began_at=1e9
        )
        for _ in range(4):
            clock.now += 1
            count(100)
        view = only(transfers)
        assert (view.bytes_done, view.bytes_per_second, view.eta_seconds) == (400, 100, 6)
    assert transfers.views() == []
    assert counted == [100] * 4


def test_the_rate_is_that_of_the_last_seconds(transfers: Transfers, clock: Clock) -> None:
    with transfers.under_way(TransferKind.RESTORE, "s", 10**9) as count:
        for _ in range(100):
            clock.now += 1
            count(1000)
        for _ in range(int(RATE_SECONDS) + 1):
            clock.now += 1
            count(10)
        assert only(transfers).bytes_per_second == pytest.approx(10)


def test_one_that_stands_still_says_so(transfers: Transfers, clock: Clock) -> None:
    with transfers.under_way(TransferKind.UPLOAD, "s", 1000) as count:
        count(500)
        clock.now += 60
        first = only(transfers)
        assert first.bytes_per_second is not None
        count(0)
        clock.now += 600
        count(0)
        later = only(transfers)
        assert (later.bytes_per_second, later.eta_seconds) == (0, None)


def test_what_is_sent_again_counts_back(transfers: Transfers, clock: Clock) -> None:
    with transfers.under_way(TransferKind.UPLOAD, "s", 1000) as count:
        count(300)
        count(-400)
        clock.now += 1
        assert only(transfers).bytes_done == 0
        count(5000)
        assert only(transfers).bytes_done == 1000


def test_one_that_fails_is_told_no_more_and_one_of_nothing_never(transfers: Transfers) -> None:
    with pytest.raises(OSError), transfers.under_way(TransferKind.UPLOAD, "s", 1):
        raise OSError
    with transfers.under_way(TransferKind.RESTORE, "kept", 0):
        assert transfers.views() == []
    assert transfers.views() == []


def test_a_transfer_that_moves_is_no_news() -> None:
    report = Report(job_uid="j", pod_uid="p", rank=0, boot_id="b", sequence=1, sent_at=1.0)
    view = TransferView(kind=TransferKind.UPLOAD, name="s", bytes_done=0, bytes_total=9, began_at=0)
    later = report.model_copy(update={"transfers": [view], "sequence": 2})
    assert not is_news(report, later)
