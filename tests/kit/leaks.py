"""Whether a secret stands anywhere, in any form that programs are known to write one in.

Must be given places where it is known to stand, too: a search that finds nothing anywhere proves
nothing.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

from kit.s3 import S3Server
from kit.s3_objects import list_keys

Place = tuple[str, bytes]


def forms(secret: str) -> dict[str, bytes]:
    """Form -> bytes to look for. Of base64 three: it may begin at any byte of a longer text, and
    what its neighbours change is left out."""
    raw = secret.encode()
    found = {
        "plain": raw,
        "hex": raw.hex().encode(),
        "HEX": raw.hex().upper().encode(),
        "url": quote(secret, safe="").encode(),
        "json": json.dumps(secret)[1:-1].encode(),
    }
    found["url, lower case"] = _lower_escapes(found["url"])
    for before in range(3):
        skipped = -(-before * 8 // 6) + (1 if before else 0)
        end = (before + len(raw)) // 3 * 4
        text = base64.b64encode(bytes(before) + raw + bytes(3))[skipped:end]
        found[f"base64 +{before}"] = text
        found[f"base64 +{before}, for URLs"] = text.replace(b"+", b"-").replace(b"/", b"_")
    return found


def leaks(places: Iterable[Place], secrets: Mapping[str, str]) -> list[str]:
    """`<secret's name>, <form>: <place>` of each that is found."""
    looked_for = {
        f"{name}, {form}": text
        for name, value in secrets.items()
        for form, text in forms(value).items()
    }
    return [
        f"{what}: {place}"
        for place, content in places
        for what, text in looked_for.items()
        if text in content
    ]


def in_directory(directory: Path) -> Iterator[Place]:
    """Names and contents of all regular files, hidden ones too; no symbolic link is followed."""
    for path in sorted(directory.rglob("*")):
        yield "name", str(path.relative_to(directory)).encode()
        if path.is_file() and not path.is_symlink():
            yield str(path), path.read_bytes()


def in_bucket(server: S3Server) -> Iterator[Place]:
    """Key, metadata and content of every object."""
    client = server.client()
    for key in list_keys(server):
        answer = client.get_object(Bucket=server.bucket, Key=key)
        yield f"key {key}", key.encode()
        yield f"metadata of {key}", json.dumps(answer["Metadata"]).encode()
        yield f"object {key}", answer["Body"].read()


def _lower_escapes(text: bytes) -> bytes:
    parts = text.split(b"%")
    return b"%".join([parts[0], *(part[:2].lower() + part[2:] for part in parts[1:])])
