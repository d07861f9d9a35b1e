"""What a copy of a save costs all ranks, against what the time between two saves leaves."""

from __future__ import annotations

import pytest
from rtj_sidecar.mirror_policy import MirrorFacts, weigh

GB = 10**9


def facts(**changes: object) -> MirrorFacts:
    known = {
        "policy": "auto",
        "size": GB,
        "takers": 1,
        "sources": 1,
        "free": 100 * GB,
        "reserve": 2 * GB,
        "rate": None,
        "interval": None,
    }
    return MirrorFacts(**{**known, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "is_worth", "word"),
    [
        ({}, True, "expected"),
        ({"size": 10 * GB}, False, "100 s"),
        ({"takers": 63}, False, "63 ranks"),  # one line for all of them
        ({"takers": 63, "sources": 63}, True, "63 ranks"),  # each shard is another's
        ({"interval": 30.0}, True, "10 s"),
        ({"interval": 15.0}, False, "8 s"),
        ({"rate": 1e9, "interval": 15.0}, True, "about 1 s for"),
        ({"rate": 1e8, "interval": 15.0}, False, "about 10 s for"),
        ({"is_uploading": True}, False, "upload"),
        ({"free": 2 * GB}, False, "free here"),
        ({"policy": "always", "size": 50 * GB, "is_uploading": True}, True, "always"),
        ({"policy": "always", "free": 2 * GB}, False, "free here"),
        ({"policy": "never"}, False, "never"),
    ],
)
def test_weighing(changes: dict[str, object], is_worth: bool, word: str) -> None:
    found = weigh(facts(**changes))
    assert found.is_worth is is_worth
    assert word in found.why
