"""A manifest that another wrote may hold anything: it is read, or refused with words."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from rtj_sidecar.runs.imports.playbook import NoPlaybook, Playbook, read_playbook, resolved

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.just(10**400)
)
ANY = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner),
    max_leaves=12,
)
ENTRY = st.dictionaries(
    st.sampled_from(["path", "epoch", "step", "validation_loss", "timestamp", "is_valid", "x"]), ANY
)
DOCUMENT = st.one_of(
    ANY,
    st.fixed_dictionaries(
        {"checkpoints": st.lists(st.one_of(ENTRY, ANY), max_size=5)},
        optional={"latest_valid_checkpoint": ANY},
    ),
)


def _read(data: bytes) -> Playbook | None:
    try:
        return read_playbook(data)
    except NoPlaybook:
        return None


@given(DOCUMENT)
@settings(max_examples=150, deadline=None)
def test_any_document_is_read_or_refused(document: object) -> None:
    found = _read(json.dumps(document).encode())
    for entry in found.entries if found else ():
        assert entry.path
        assert entry.step is None or entry.step >= 0
        assert entry.is_valid in (True, False, None)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    found = _read(data)
    assert found is None or all(entry.path for entry in found.entries)


@given(
    st.text(max_size=40),
    st.sampled_from(["/data/old", "s3://b/old", "/"]),
    st.sets(st.sampled_from(["a.pt", "b/c.pt", "b", "d.pt"])),
)
@settings(deadline=None)
def test_a_path_leads_to_what_is_there_or_nowhere(path: str, base: str, present: set[str]) -> None:
    found = resolved(path, base=base, present=present)
    assert found is None or found in present


def test_a_deeply_nested_document_is_refused() -> None:
    assert _read(b"[" * 200_000) is None
