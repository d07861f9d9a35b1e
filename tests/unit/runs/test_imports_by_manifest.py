"""A manifest in the playbook's form that another's trainer keeps: heeded, and never believed."""

from __future__ import annotations

from typing import Any

import pytest
from kit.foreign import playbook, torch_bytes
from kit.origins import Origin


def entries(*paths: str, **more: Any) -> list[dict[str, Any]]:
    return [{"path": path, "step": 10 * (n + 1), **more} for n, path in enumerate(paths)]


def test_a_manifest_is_heeded_where_it_is_named_and_where_it_lies(origin: Origin) -> None:
    bad = {"path": "ckpt_30.pt", "step": 30, "is_valid": False}
    gone = {"path": "ckpt_40.pt", "step": 40}
    origin.holds(
        {f"ckpt_{n}.pt": torch_bytes(step=n) for n in (10, 20, 30)}
        | {"manifest.json": playbook(*entries("ckpt_10.pt", "ckpt_20.pt"), bad, gone)}
    )
    for path in ("manifest.json", ""):
        found = origin.find(path)
        assert found.save is not None, found.problem
        assert found.save.step == 20
        told = " ".join(found.passed_over)
        assert "ckpt_30.pt: the manifest says that it is not valid" in told
        assert "ckpt_40.pt: the manifest names it and it is not there" in told


@pytest.mark.parametrize("prefix", ["/checkpoints/run1", "s3://other/run1", "file:///x/run1", "."])
def test_paths_of_another_machine_are_found_by_their_tail(origin: Origin, prefix: str) -> None:
    origin.holds(
        {
            "sub/a.pt": torch_bytes(),
            "sub/b.pt": torch_bytes(),
            "m.json": playbook(*entries(f"{prefix}/sub/a.pt", f"{prefix}/sub/b.pt")),
        }
    )
    manifest = origin.taken("m.json")
    assert (manifest.root_key, manifest.step) == ("sub/b.pt", 20), "its step is the manifest's"


def test_the_pointer_of_a_manifest_decides_only_where_nothing_else_can(origin: Origin) -> None:
    files = {"a.pt": torch_bytes(), "b.pt": torch_bytes()}
    listed = [{"path": "a.pt"}, {"path": "b.pt"}]
    origin.holds(files | {"manifest.json": playbook(*listed, latest="a.pt")})
    assert origin.taken("manifest.json").root_key == "a.pt"
    origin.holds({"manifest.json": playbook(*entries("a.pt", "b.pt"), latest="a.pt")})
    assert origin.taken("manifest.json").root_key == "b.pt"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"{", "no JSON"),
        (b"[]", '"checkpoints"'),
        (b'{"checkpoints": [{"step": 1}]}', "checkpoints[0]"),
        (b'{"checkpoints": [{"path": "a.pt", "is_valid": "no"}]}', "is_valid"),
        (b'{"checkpoints": [{"path": "gone.pt"}]}', "gone.pt"),
        (b'{"checkpoints": []}', "names no checkpoint"),
    ],
)
def test_a_manifest_that_cannot_be_used_says_why(origin: Origin, data: bytes, words: str) -> None:
    origin.holds({"a.pt": torch_bytes(step=1), "m.json": data})
    found = origin.find("m.json")
    assert found.save is None
    assert words in (found.problem or "")


def test_a_content_that_contradicts_a_manifest_wins(origin: Origin) -> None:
    origin.holds(
        {
            "a.pt": torch_bytes(step=7),
            "b.pt": torch_bytes(step=5),
            "m.json": playbook({"path": "a.pt", "step": 1}, {"path": "b.pt", "step": 9000}),
        }
    )
    assert (origin.taken("m.json").root_key, origin.taken("m.json").step) == ("a.pt", 7)
