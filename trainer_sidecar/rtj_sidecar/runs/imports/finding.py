"""From a value of resumeFrom that names a foreign place to a save of this run, or why not."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from rtj_api.reasons import Reason
from rtj_api.wire import Found

from rtj_sidecar.runs import lineage
from rtj_sidecar.runs.context import Context
from rtj_sidecar.runs.history import History
from rtj_sidecar.runs.imports.importing import bring_in, first_proved
from rtj_sidecar.runs.imports.places import Bucket, Directory, Place
from rtj_sidecar.runs.imports.surveying import How, Unusable, survey
from rtj_sidecar.runs.keys import SaveId
from rtj_sidecar.stores.base import SourceChanged, Store, StoreProblem

_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_PASSED_TOLD = 10


def is_file(url: str) -> bool:
    return urlsplit(url).scheme == "file"


def place_at(url: str, *, open_place: Callable[[str], Store]) -> Place:
    """The place at a file:// or bucket URL. Raises Unusable, StoreProblem."""
    if is_file(url):
        root = Path(unquote(urlsplit(url).path))
        if not root.exists():
            raise Unusable(
                f"{root} is not there as seen from here. In checkpoint.resumeFrom, name a "
                "directory of a volume that the trainer mounts, by the path at which the trainer "
                "sees it"
            )
        return Directory(root)
    parts = urlsplit(url)
    prefix = parts.path.strip("/")
    return Bucket(open_place(f"{parts.scheme}://{parts.netloc}"), prefix)


def foreign(
    context: Context, history: History, place: Place, *, asked: str, fence: int, how: How
) -> Found:
    """The newest whole save of a place that this project did not write, copied into this run."""
    try:
        seen = survey(place, how=how)
        proved = first_proved(seen, how=how)
        manifest = bring_in(context, history, proved, seen.place, fence=fence, how=how)
    except SourceChanged as error:
        raise StoreProblem(
            Reason.RESUME_FROM_UNUSABLE,
            f"{error}: let whoever writes there end first, or name another place",
            transient=True,
        ) from error
    except OSError as error:
        if isinstance(place, Directory) and error.errno not in _DISK:
            raise Unusable(
                f"{error.filename or place.url} cannot be read: {error.strerror or error}. Let the "
                f"sidecar's user (uid {os.getuid()}) read it"
            ) from error
        raise no_room(how.incoming, error) from error
    finally:
        shutil.rmtree(how.incoming, ignore_errors=True)
    at = SaveId(manifest.fence, manifest.n)
    with_it = replace(history, manifests={**history.manifests, at: manifest})
    return Found(
        asked=asked,
        save=lineage.candidate(with_it, at),
        passed_over=[str(each) for each in proved.passed][:_PASSED_TOLD],
    )


def no_room(path: Path, error: Exception) -> StoreProblem:
    """The pod's own disk stands in the way: told like any trouble on the way, and tried again."""
    return StoreProblem(
        Reason.DISK_FULL,
        f"a save from elsewhere cannot be copied by way of {path.parent}: {error}. Make the volume "
        "of checkpoint.path larger, and writable",
        transient=True,
    )
