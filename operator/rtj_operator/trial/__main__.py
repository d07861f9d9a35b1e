"""`python -m rtj_operator.trial`, what `helm test` runs: makes the job, watches it, removes it.

Ends with 0 where the trainer was killed and went on from its checkpoint, else with 1 and what the
job says of itself; either way the job is gone. Must never leave it there: also SIGTERM removes it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

from rtj_operator.trial.plan import (
    Settings,
    desired_job,
    fault,
    is_due,
    is_over,
    lines,
    settings_from,
    words,
)
from rtj_operator.trial.server import Refused, Server

LOOK_SECONDS = 0.5
CLEANING_SECONDS = 45.0


class Failed(Exception):
    """The trial did not show what it was to show; the message is for the person who ran it."""


def main() -> None:
    settings = settings_from(os.environ)
    signal.signal(signal.SIGTERM, _interrupt)
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {text}", flush=True)

    try:
        server = Server()
        with a_job(server, settings=settings, say=say):
            watch(server, settings=settings, say=say, end=began + settings.seconds)
    except (Failed, Refused, OSError) as error:
        say(f"FAILED: {error}")
        raise SystemExit(1) from error
    say("PASSED: a trainer was killed, and went on from its checkpoint")


def _interrupt(*_: Any) -> None:
    raise Failed("asked to end before it was over")


@contextlib.contextmanager
def a_job(server: Server, *, settings: Settings, say: Any) -> Iterator[None]:
    """The job is there while the block runs, and gone after it."""
    place = {"namespace": settings.namespace, "name": settings.name}
    job = desired_job(settings)
    try:
        server.create_job(job)
    except Refused as error:
        if error.code != 409:
            raise
        say("a job of an earlier test was left; it goes first")
        remove(server, place=place)
        server.create_job(job)
    try:
        say(f"made the job {settings.namespace}/{settings.name}")
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        remove(server, place=place)
        say("the job and its pods are gone")


def remove(server: Server, *, place: dict[str, str]) -> None:
    """Returns when the job is gone. Raises Failed when it stays."""
    end = time.monotonic() + CLEANING_SECONDS
    while time.monotonic() < end:
        try:
            with contextlib.suppress(OSError):
                server.delete_job(**place)
        except Refused as error:
            if error.code == 404:
                return
            raise
        time.sleep(LOOK_SECONDS)
    raise Failed(
        "the job could not be removed: kubectl -n {namespace} delete rtj {name}".format(**place)
    )


def watch(server: Server, *, settings: Settings, say: Any, end: float) -> None:
    """Until the job is over. Raises Failed with what the job says where it went wrong."""
    place = {"namespace": settings.namespace, "name": settings.name}
    said: list[str] = []
    to_kill: list[dict[str, Any]] | None = None
    status: dict[str, Any] = {}
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            status = server.get_job(**place).get("status") or {}
        for line in lines(status):
            if line not in said:
                say(line)
                said.append(line)
        if is_over(status):
            break
        if settings.store and is_due(status):
            with contextlib.suppress(OSError):
                if to_kill is None:  # those of the first attempt, and no later ones
                    to_kill = server.pods_of(namespace=settings.namespace, job=settings.name)
                while to_kill:
                    name = to_kill[-1]["metadata"]["name"]
                    server.delete_pod(namespace=settings.namespace, name=name)
                    to_kill.pop()
        time.sleep(LOOK_SECONDS)
    wrong = fault(status)
    if wrong is None:
        return
    if not status:
        wrong = "the operator has not taken the job: is it ready, and does it watch this namespace?"
    elif not is_over(status):
        wrong = f"not done in {settings.seconds:.0f} s: {wrong}"
    for line in words(status):
        say(f"the job says {line}")
    raise Failed(wrong)


if __name__ == "__main__":
    try:
        main()
    except (KeyError, ValueError) as error:
        sys.stderr.write(f"the trial's own environment is wrong: {error!r}\n")
        raise SystemExit(2) from error
