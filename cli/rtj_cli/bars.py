"""How far the transfers of `rtj run` are: bars on a terminal, a line now and then anywhere else.

Must never write to standard output, which is the trainer's, nor draw a bar into what it prints.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.progress import Progress, TaskID
from rtj_api.wire import TransferKind, TransferView

from rtj_cli.telling import bars_on, note, size

LINE_EVERY_SECONDS = 10.0
Say = Callable[[str], None]
WORDS = {
    TransferKind.UPLOAD: "uploading",
    TransferKind.RESTORE: "restoring",
    TransferKind.MIRROR: "mirroring",
}


class Bars:
    """`say` prints a line. `clock` is monotonic."""

    def __init__(
        self,
        *,
        say: Say,
        console: Console = note,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say = say
        self._console = console
        self._clock = clock
        self._drawn: Progress | None = None
        self._tasks: dict[tuple[str, str], TaskID] = {}
        self._told: dict[tuple[str, str], float] = {}

    def show(self, transfers: Sequence[TransferView], *, alone: bool) -> None:
        """Bring up to date. `alone`: nobody else writes to the terminal now."""
        if alone and self._console.is_terminal and transfers:
            self._draw(transfers)
            return
        self.close()
        self._tell(transfers)

    def close(self) -> None:
        """No bar is left on the terminal."""
        if self._drawn is not None:
            self._drawn.stop()
            self._drawn = None
            self._tasks.clear()

    def _draw(self, transfers: Sequence[TransferView]) -> None:
        if self._drawn is None:
            self._drawn = bars_on(self._console)
            self._drawn.start()
        here = {_key(view): view for view in transfers}
        for key in [key for key in self._tasks if key not in here]:
            self._drawn.remove_task(self._tasks.pop(key))
        for key, view in here.items():
            if key not in self._tasks:
                words = f"{WORDS[view.kind]} {view.name}"
                self._tasks[key] = self._drawn.add_task(words, total=view.bytes_total)
            self._drawn.update(self._tasks[key], completed=view.bytes_done)

    def _tell(self, transfers: Sequence[TransferView]) -> None:
        now = self._clock()
        here = {_key(view): view for view in transfers}
        self._told = {key: at for key, at in self._told.items() if key in here}
        for key, view in here.items():
            # What is over within that time needs no word.
            if now - self._told.setdefault(key, now) >= LINE_EVERY_SECONDS:
                self._told[key] = now
                self._say(line(view))


def line(view: TransferView) -> str:
    """`uploading f1-n3-s30: 1.2 GB of 4.0 GB (30 %), 210.0 MB/s, 13 s left`."""
    percent = 100 * view.bytes_done // max(1, view.bytes_total)
    words = f"{WORDS[view.kind]} {view.name}: {size(view.bytes_done)} of {size(view.bytes_total)}"
    words += f" ({percent} %)"
    if view.bytes_per_second is not None:
        words += f", {size(view.bytes_per_second)}/s"
    if view.eta_seconds is not None:
        words += f", {duration(view.eta_seconds)} left"
    return words


def duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _key(view: TransferView) -> tuple[str, str]:
    return view.kind.value, view.name
