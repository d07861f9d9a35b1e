"""Names of what a worker of pytest-xdist has for itself.

Workers run side by side on one machine: what one takes down, no other may be using.
"""

from __future__ import annotations

import os


def own(name: str) -> str:
    """`name` with this worker's id, or as it is where nothing runs beside."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    return f"{name}-{worker}" if worker else name
