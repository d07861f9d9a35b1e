"""What a spare fetches ahead once it has been given a rank: nothing of it may touch a restore."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rtj_api.contract import HIDDEN_DIR
from rtj_sidecar.fetching_ahead import FetchingAhead, _Seen
from rtj_sidecar.runs.fetch import Fetched

NEWEST, OTHER = "f1-n2-s20", "f1-n3-s30"


def ahead_of(tmp_path: Path, *, stops: bool) -> tuple[FetchingAhead, Any]:
    """Its fetch of the newest save is on its way when it is told to stop, and comes whole."""
    file = SimpleNamespace(ranks=None, size=10)

    def fetch(name: str, dest: Path, **_: object) -> Fetched:
        if stops:
            ahead._cancel.set()
        (tmp_path / HIDDEN_DIR / "incoming" / OTHER).mkdir()  # a restore begins beside it
        return Fetched(1, 0, 10, 0)

    config = SimpleNamespace(max_restore_bytes=None, pod_volume_bytes=None)
    run: Any = SimpleNamespace(
        newest_told=lambda: NEWEST,
        manifest=lambda _: SimpleNamespace(files=[file]),
        moving=SimpleNamespace(fetch=fetch),
    )
    site: Any = SimpleNamespace(config=config, path=tmp_path)
    ahead = FetchingAhead(site, None, run)  # type: ignore[arg-type]
    return ahead, run


@pytest.mark.parametrize("stops", [True, False])
def test_a_fetch_that_ends_after_its_stop_removes_nothing(tmp_path: Path, stops: bool) -> None:
    ahead, run = ahead_of(tmp_path, stops=stops)
    seen = ahead._look(run, _Seen(None, 0))
    assert (tmp_path / HIDDEN_DIR / "incoming" / NEWEST).is_dir()
    assert (tmp_path / HIDDEN_DIR / "incoming" / OTHER).is_dir() is stops
    assert (seen.name is None) is stops
