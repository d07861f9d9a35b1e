"""`python -m rtj_sidecar`: the sidecar of one pod. See docs/sidecar.md.

Installs the supervisor before anything that takes long to import, for in a pod the trainer's
container waits for that alone. Must never fail there: what is wrong with the environment or the
disk is said by the agent, which knows the words.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path

from rtj_api import contract

from rtj_sidecar.trainer.install import install


def install_early() -> None:
    """In a pod only: elsewhere the directory comes as an argument."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        config = json.loads(os.environ[contract.ENV_CONFIG])
        told = {key: config[key] for key in ("path", "trainerGraceSeconds")}
        told["postStart"] = config.get("postStart") or []
        install(Path(contract.MOUNT_RUN), config=json.dumps(told))


def main() -> int:
    if len(sys.argv) == 1:
        install_early()
    from rtj_sidecar.serve import main as serve

    return serve()


if __name__ == "__main__":
    sys.exit(main())
