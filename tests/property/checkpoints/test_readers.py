"""The short twin of `make fuzz`: good inputs of every reader, changed a little, and all that was
ever found to break one."""

from __future__ import annotations

import pytest
from fuzz.readers import READERS, try_one
from fuzz.seeds import found, seeds
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SEEDS = tuple(seeds())


def test_every_reader_has_a_good_input() -> None:
    assert {name for name, content in SEEDS if try_one(name, content)} == set(READERS)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_changed_input_is_read_or_refused(data: st.DataObject) -> None:
    name, content = data.draw(st.sampled_from(SEEDS))
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(changed)))
        size = data.draw(st.integers(0, 8))
        changed[at : at + size] = data.draw(st.binary(max_size=8))
    assert try_one(name, bytes(changed)) in (True, False)  # and raises nothing else


@pytest.mark.parametrize(("name", "content"), tuple(found()))
def test_what_once_broke_a_reader_does_so_no_more(name: str, content: bytes) -> None:
    assert try_one(name, content) in (True, False)
