"""The directory that a trainer's framework stages its saves in: empty before each start.

It lies on the checkpoint volume, so that a save becomes visible by one rename. What a killed
trainer left there is a part of a save that nobody will finish.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from rtj_api import contract

from rtj_sidecar.config import Site
from rtj_sidecar.directory_problem import problem_of


def has_staging(site: Site) -> bool:
    """Whether the trainer may have its TMPDIR there; making it for one that has not costs nothing.

    Never in a directory that several pods write: another rank may be staging there now.
    """
    config = site.config
    shared = config.shared_directory or config.fenced_directory
    return config.layout in contract.STAGING_LAYOUTS and not shared


def make_staging(root: Path) -> None:
    """Empty, and open to whatever user the trainer runs as. Raises DirectoryProblem."""
    place = root / contract.HIDDEN_DIR / contract.DIRECTORY_STAGING
    try:
        if place.is_symlink():
            place.unlink()
        elif place.exists():
            shutil.rmtree(place)
        place.mkdir(parents=True)
        os.chmod(place, 0o1777)
    except OSError as error:
        raise problem_of(error, root, "write to") from error
