"""The libraries that the script has imported, and no others.

Must never import one: a script without PyTorch stays without it.
"""

from __future__ import annotations

import sys
from typing import Any


def imported(name: str) -> Any:
    """The module of that full name if the script has imported it, else None."""
    return sys.modules.get(name)


def torch_or_none() -> Any:
    """PyTorch, once its import has finished; None without it."""
    torch = imported("torch")
    return torch if torch is not None and hasattr(torch, "get_rng_state") else None
