"""Credentials from a mounted Secret, looked at again for every request; else from the environment.

A container's environment never changes, a mounted Secret does: what was wrong or has been rotated
is taken up without a restart. Must never log or tell a value.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")


def values_of(directory: Path | None, names: tuple[str, ...]) -> dict[str, str]:
    """The values that are set: the Secret's if it has any of these names, else the environment's.

    Never some of one and some of the other: an account of here with a key of there.
    """
    found = {}
    if directory is not None:
        for name in names:
            try:
                text = (directory / name).read_text(encoding="utf-8").strip()
            except OSError:
                continue
            if text:
                found[name] = text
    return found or {name: value for name in names if (value := os.environ.get(name, "").strip())}


class Fresh(Generic[T]):
    """What `make` makes of the values, made anew when they are others than before."""

    def __init__(
        self,
        make: Callable[[Mapping[str, str]], T],
        *,
        directory: Path | None,
        names: tuple[str, ...],
    ) -> None:
        self._make, self._directory, self._names = make, directory, names
        self._lock = threading.Lock()
        self._values: dict[str, str] | None = None
        self._made: T | None = None

    def get(self) -> T:
        with self._lock:
            values = values_of(self._directory, self._names)
            if self._made is None or values != self._values:
                self._made, self._values = self._make(values), values
            return self._made


class _NoRequests(logging.Filter):
    """Libraries write whole URLs and headers at DEBUG, session tokens and signatures with them."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        # urllib3's warnings have a URL without its server, a token in the query.
        return record.levelno > logging.INFO and "://" not in text and "?" not in text


def keep_requests_out_of_logs(*names: str) -> None:
    """For the loggers that are named, and urllib3's; may be called again."""
    for name in ("urllib3.connectionpool", *names):
        logger = logging.getLogger(name)
        if not any(isinstance(each, _NoRequests) for each in logger.filters):
            logger.addFilter(_NoRequests())
