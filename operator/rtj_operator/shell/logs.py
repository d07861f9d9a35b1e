"""How the operator logs: JSON lines on stderr (`rtj_api.log_lines`). Must never log elsewhere."""

from __future__ import annotations

import logging
import sys

from rtj_api.log_lines import JsonLines


def log_json(*, level: str) -> None:
    """All loggers of the process write JSON lines to stderr; kopf's only from WARNING on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(component="operator"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in ("kopf", "aiohttp", "asyncio"):
        logging.getLogger(name).setLevel(logging.DEBUG if level == "DEBUG" else logging.WARNING)
