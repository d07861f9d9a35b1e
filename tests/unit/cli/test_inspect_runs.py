"""`rtj inspect` of a store: the line a job goes on with, its branches, and where to point it."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.run_writer import run_of
from rtj_cli.inspecting import of_store
from rtj_sidecar.runs.commit import Committed
from rtj_sidecar.runs.fence import Claimed
from rtj_sidecar.runs.records import Parent, SaveFacts
from rtj_sidecar.runs.ships import Named
from rtj_sidecar.runs.upload import LocalFile
from rtj_sidecar.stores.open import open_store


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store whose run `ns/gpt` was rolled back from step 20 to step 10 and went on to 15."""
    url = (tmp_path / "store").as_uri()
    run = run_of(open_store(url))

    def attempt(number: int, parent: Parent, *steps: int) -> list[str]:
        claimed = run.claim(attempt=number, world_size=1)
        assert isinstance(claimed, Claimed)
        run.set_parent(fence=claimed.fence, parent=parent)
        names = []
        for n, step in enumerate(steps, start=1):
            facts = SaveFacts(root_key="a.pt", layout="generic", step=step, full_state=True)
            named = run.publishing.name_ship(
                fence=claimed.fence,
                n=n,
                save=facts,
                seen={0: ["a.pt"]},
                world_size=1,
                parent=parent,
            )
            assert isinstance(named, Named)
            file = tmp_path / "a.pt"
            file.write_bytes(b"step %d" % step)
            size = file.stat().st_size
            local = LocalFile(path="a.pt", source=file, size=size, mode=0o600)
            run.moving.upload_part(named.ship, files=[local], save=facts)
            assert isinstance(run.publishing.try_commit(named.ship, fence=claimed.fence), Committed)
            names.append(named.ship.name)
        return names

    first, _ = attempt(1, Parent(scratch=True), 10, 20)
    attempt(2, Parent(name=first, step=10, asked="request 1"), 15)
    return url


@pytest.mark.parametrize("ending", ["", "/ns/gpt", "/ns/gpt/"])
def test_a_store_or_the_url_of_a_run_tells_the_line_and_then_the_branches(
    url: str, ending: str
) -> None:
    rows = of_store(url + ending, run_id=None, deep=False)
    assert [(r.run, r.name, r.current, r.branch) for r in rows] == [
        ("ns/gpt", "f2-n1-s15", True, False),
        ("ns/gpt", "f1-n1-s10", False, False),
        ("ns/gpt", "f1-n2-s20", False, True),
    ]
    assert all(row.valid for row in rows)


def test_a_url_that_holds_no_run_says_what_to_give(url: str) -> None:
    with pytest.raises(LookupError, match="--run-id"):
        of_store(f"{url}/elsewhere", run_id=None, deep=False)
    with pytest.raises(LookupError, match="it has: ns/gpt"):
        of_store(url, run_id="ns/gbt", deep=False)
