"""CPU seconds and memory of one look, verdict and pin over many small files: `small_files.py N…`.

Prints one JSON line for each N: `one_save` is N files in one directory, `many_saves` N files in
N/10 of them. Both must grow linearly.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from kit.handmade import torch_bytes
from rtj_sidecar.checkpoints.layouts import layouts_for
from rtj_sidecar.checkpoints.pin_choice import InodeHistory, how_to_pin
from rtj_sidecar.checkpoints.pins import pin_save
from rtj_sidecar.checkpoints.quiescence import Observations, Writers, observe
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.scan import take_snapshot
from rtj_sidecar.checkpoints.types import Expectations
from rtj_sidecar.checkpoints.validate import Patience, judge_all

T = TypeVar("T")


def measured(root: Path) -> dict[str, float]:
    """CPU seconds of each part."""
    reader, layouts = Reader(root), layouts_for()
    spent: dict[str, float] = {}

    def timed(name: str, do: Callable[[], T]) -> T:
        begin = time.process_time()
        found = do()
        spent[name] = round(time.process_time() - begin, 3)
        return found

    first = timed("scan", lambda: take_snapshot(reader=reader, layouts=layouts))
    timed("scan_unchanged", lambda: take_snapshot(reader=reader, layouts=layouts, previous=first))
    seen = observe(before=Observations(), snapshot=first, now=0.0)

    def judge() -> object:
        return judge_all(
            snapshot=first,
            reader=reader,
            layouts=layouts,
            observations=seen,
            patience=Patience(now=10.0),
            writers=Writers(open_paths=frozenset()),
            expect=Expectations(),
        )

    timed("judge", judge)
    timed("judge_unchanged", judge)
    newest = first.saves[-1]
    how = how_to_pin(save=newest, history=InodeHistory())
    timed("pin", lambda: pin_save(reader=reader, save=newest, pin_id="p", how=how))
    return spent


def main(counts: list[int]) -> None:
    content = torch_bytes({"a": 1}, payload=10)
    for count in counts:
        told: dict[str, object] = {"files": count}
        for name, each in (("one_save", count), ("many_saves", 10)):
            with tempfile.TemporaryDirectory() as place:
                for at in range(count):
                    path = Path(place, f"step_{at // each + 1}", f"part_{at % each}.pt")
                    path.parent.mkdir(exist_ok=True)
                    path.write_bytes(content)
                told[name] = measured(Path(place))
        told["rss_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [1000, 10_000, 100_000])
