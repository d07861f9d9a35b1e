"""What `rtj run` shows of transfers: bars where it has the terminal alone, else lines."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rtj_api.wire import TransferKind, TransferView
from rtj_cli.bars import LINE_EVERY_SECONDS, Bars, duration, line


def view(done: int = 1_200_000_000, **more: object) -> TransferView:
    given = {"bytes_per_second": 210e6, "eta_seconds": 13.3} | more
    return TransferView(
        kind=TransferKind.UPLOAD,
        name="f1-n3-s30",
        bytes_done=done,
        bytes_total=4_000_000_000,
        began_at=0,
        **given,
    )


def test_a_line_says_all() -> None:
    words = "uploading f1-n3-s30: 1.2 GB of 4.0 GB (30 %), 210.0 MB/s, 13 s left"
    assert line(view()) == words
    assert line(view(bytes_per_second=None, eta_seconds=None)) == words.partition(", ")[0]


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (7260, "2 h 1 min")]
)
def test_a_duration(seconds: float, words: str) -> None:
    assert duration(seconds) == words


class Screen:
    """Bars on a terminal or a file, a clock, and what they said."""

    def __init__(self, *, terminal: bool) -> None:
        self.now = 0.0
        self.said: list[str] = []
        self.out = io.StringIO()
        console = Console(file=self.out, force_terminal=terminal, width=120)
        self.bars = Bars(say=self.said.append, console=console, clock=lambda: self.now)


def test_lines_come_now_and_then_and_none_for_a_short_one() -> None:
    screen = Screen(terminal=False)
    for second in range(35):
        screen.now = float(second)
        screen.bars.show([view(second * 10**8)], alone=True)
    assert len(screen.said) == 3
    screen.bars.show([], alone=True)
    screen.now += 1
    screen.bars.show([view()], alone=True)
    screen.now += LINE_EVERY_SECONDS - 0.1
    screen.bars.show([view()], alone=True)
    assert len(screen.said) == 3, "over before a word was due"
    assert screen.out.getvalue() == ""


def test_bars_are_drawn_only_while_no_trainer_prints() -> None:
    screen = Screen(terminal=True)
    screen.bars.show([view()], alone=True)
    screen.bars.show([view(2_000_000_000)], alone=True)
    drawn = len(screen.out.getvalue())
    assert "f1-n3-s30" in screen.out.getvalue()
    screen.bars.show([view()], alone=False)
    after = len(screen.out.getvalue())
    assert after > drawn, "the bar is taken away"
    screen.now += 2 * LINE_EVERY_SECONDS
    screen.bars.show([view()], alone=False)
    assert len(screen.out.getvalue()) == after, "nothing is drawn into the trainer's output"
    assert screen.said == [line(view())]
    assert screen.bars._drawn is None
