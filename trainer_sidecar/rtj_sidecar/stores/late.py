"""A store whose driver is still being loaded: botocore takes longer than all else at the start.

The sidecar answers meanwhile, and whoever calls the store first waits for it, in a thread of its
own as with every call. Must never hide why a driver could not be made: each call says it again.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from rtj_sidecar.stores.base import Store


class _LateStore:
    def __init__(self, url: str, make: Callable[[], Store]) -> None:
        self.url = url
        with_one = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._made = with_one.submit(make)
        with_one.shutdown(wait=False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made.result(), name)


def late_store(url: str, make: Callable[[], Store]) -> Store:
    """`url` as the driver will call itself; `make` may raise StoreProblem."""
    return cast(Store, _LateStore(url, make))
