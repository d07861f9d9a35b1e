"""The same work on many items in a few threads, of which the first error ends all.

A save may have a hundred thousand files: no more is held for each of them than its result.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from rtj_sidecar.stores.base import Cancelled

Item = TypeVar("Item")
Result = TypeVar("Result")


def at_once(
    do: Callable[[Item], Result], items: Sequence[Item], *, threads: int, name: str
) -> list[Result]:
    """`do` of each, in the order of `items`, begun in that order. After an error no other item is
    begun; raised is the first that is no Cancelled, for one that was stopped tells nothing."""
    if threads <= 1 or len(items) <= 1:
        return [do(item) for item in items]
    left = iter(enumerate(items))
    lock = threading.Lock()
    done: dict[int, Result] = {}
    errors: list[BaseException] = []

    def work() -> None:
        while True:
            with lock:
                at, item = next(left, (None, None)) if not errors else (None, None)
            if at is None:
                return
            try:
                result = do(item)  # type: ignore[arg-type]
            except BaseException as error:
                with lock:
                    errors.append(error)
                return
            with lock:
                done[at] = result

    with ThreadPoolExecutor(threads, name) as pool:
        for future in [pool.submit(work) for _ in range(min(threads, len(items)))]:
            future.result()
    for error in sorted(errors, key=lambda error: isinstance(error, Cancelled)):
        raise error
    return [done[at] for at in range(len(items))]
