"""The sidecar's end of the small files between it and the supervisor.

Everything is written whole and renamed, so either side may die between any two writes. Must never
assume that the supervisor has seen a file: it acknowledges in supervisor.json.
"""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from rtj_api import contract
from rtj_api.wire import (
    Go,
    Look,
    Release,
    Stop,
    SuperviseConfig,
    SupervisorState,
    TrainerState,
    Trial,
    Wire,
)

from rtj_sidecar.trainer.install import beat, install, write_whole


@dataclass(frozen=True, slots=True)
class SupervisorLink:
    """`root` is the directory that the trainer's container sees as /rtj."""

    root: Path

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def executable(self) -> Path:
        return self.root / "bin" / "supervise"

    def install(self, config: SuperviseConfig) -> None:
        """Put the supervisor where the trainer's command expects it. Raises OSError."""
        install(self.root, config=config.dump_json())

    def beat(self) -> None:
        """Tell the supervisor that somebody still looks after the saves."""
        beat(self.root)

    def go(self, message: Go) -> None:
        write_whole(self.run / contract.FILE_GO_SHELL, _as_shell(message))
        self._write(contract.FILE_GO, message)

    def trial(self, message: Trial) -> None:
        self._write(contract.FILE_TRIAL, message)

    def look(self, message: Look) -> None:
        self._write(contract.FILE_LOOK, message)

    def stop(self, message: Stop) -> None:
        self._write(contract.FILE_STOP, message)

    def kill(self, *, up_to: int) -> None:
        """End the trainer of any attempt up to that one without grace."""
        self.stop(Stop(attempt=up_to, grace_seconds=None))

    def release(self, message: Release) -> None:
        words = f"message={shlex.quote(message.message)}\ncode={message.code & 0xFF}\n"
        write_whole(self.run / contract.FILE_RELEASE_SHELL, words)
        self._write(contract.FILE_RELEASE, message)

    def _write(self, name: str, message: Wire) -> None:
        write_whole(self.run / name, message.dump_json())

    def told_to_go(self) -> int:
        """The attempt of the last go, 0 if there was none: the truth about "after go"."""
        try:
            return int(json.loads((self.run / contract.FILE_GO).read_text())["attempt"])
        except (OSError, ValueError, KeyError, TypeError):
            return 0

    def state(self) -> SupervisorState | None:
        """What the supervisor last published, None before its first word."""
        try:
            text = (self.run / contract.FILE_SUPERVISOR).read_text(encoding="utf-8")
            return SupervisorState.model_validate_json(text)
        except (OSError, ValidationError):
            return None

    def state_changed(self, seen: tuple[int, int] | None) -> tuple[int, int] | None:
        """The file's present identity if it is not `seen`, else None: cheap enough for a poll."""
        try:
            status = os.stat(self.run / contract.FILE_SUPERVISOR)
        except OSError:
            return None
        now = (status.st_ino, status.st_mtime_ns)
        return now if now != seen else None


def _as_shell(message: Go) -> str:
    """To be read by `plain.sh` with the command as positional parameters."""
    lines = [
        f"export {name}={shlex.quote(value)}"
        for name, value in message.env.items()
        if name.isidentifier() and name.isascii()
    ]
    if message.extra_args:
        lines.append(f'[ -n "$placed" ] || set -- "$@" {shlex.join(message.extra_args)}')
    return "\n".join([*lines, ""])


def is_stopped(state: SupervisorState | None, *, up_to: int) -> bool:
    """Whether no trainer of an attempt up to that one runs here or will be started.

    A supervisor that has not spoken yet proves nothing: it may be about to read an older go.json.
    """
    return (
        state is not None
        and state.stopped_attempt >= up_to
        and state.trainer.state is not TrainerState.RUNNING
        and state.lingering == 0
        and (state.trial is None or state.trial.ended)
    )
