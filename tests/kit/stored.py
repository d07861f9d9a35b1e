"""Files to store, and the trouble that a store tells."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rtj_sidecar.stores.base import StoreProblem

MIB = 1 << 20


def problem(call: Callable[[], object]) -> StoreProblem:
    with pytest.raises(StoreProblem) as raised:
        call()
    return raised.value
