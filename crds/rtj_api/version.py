"""The release that this tree is: the one place where its number stands.

pyproject.toml reads it from here; the chart, the Dockerfile's and the README's examples are written
from it by `scripts/version.py` (part of `make generate`). The images hold no installed package, so
a program that asks importlib.metadata for it would find nothing there: it imports this. Must never
import anything.
"""

from __future__ import annotations

RELEASE = "0.1.0"  # semantic versioning; a release candidate is 0.1.0-rc.1
