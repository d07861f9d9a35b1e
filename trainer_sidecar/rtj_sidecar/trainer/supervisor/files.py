"""Small files between the supervisor and the sidecar, written whole and renamed."""

from __future__ import annotations

import json
import os


def write_whole(path, data):
    """Write JSON so that a reader sees the old or the new content, never a part."""
    write_text(path, json.dumps(data))


def write_text(path, text):
    temporary = "{}.{}.tmp".format(path, os.getpid())
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(temporary, 0o666)
    os.rename(temporary, path)


def read_json(path):
    """The object in a file, or None where there is none or it is not one."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def identity(path):
    """Changes whenever the file is replaced; None where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_ino, status.st_mtime_ns, status.st_size)


class Mailbox:
    """Files that another process replaces whenever it has something new to say."""

    def __init__(self, directory):
        self.directory = directory
        self.seen = {}

    def news(self, name):
        """The content of a file if it is not the one looked at last."""
        place = os.path.join(self.directory, name)
        now = identity(place)
        if now is None or now == self.seen.get(name):
            return None
        data = read_json(place)
        if data is not None:
            self.seen[name] = now
        return data
