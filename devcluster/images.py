"""Images without a registry: the pause image, and archives put into nodes.

An archive is one file in docker-archive form (manifest.json) or OCI form (index.json). A node
that has an archive's images already is left alone; an archive is never half taken for loaded.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAUSE_IMAGE = "localhost/devcluster-pause:1"
# Names the archive that an image came from; containerd drops it when the name is re-imported.
ARCHIVE_LABEL = "devcluster/archive"
# Set by containerd's CRI plugin once the kubelet can see the image.
CRI_LABEL = "io.cri-containerd.image=managed"


class ImageError(RuntimeError):
    """The file is no image archive, or containerd refused it."""


def write_archive(
    target: Path, *, name: str, layer: bytes | Path, config: dict[str, object]
) -> None:
    """A docker-archive of one uncompressed layer; the same input gives the same bytes.

    Form: moby image spec v1.2, "Combined Image JSON + Filesystem Changeset Format".
    """
    digest = hashlib.sha256()
    if isinstance(layer, Path):
        with layer.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    else:
        digest.update(layer)
    image = {
        "architecture": "amd64",
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest.hexdigest()}"]},
        # buildah 1.28 refuses to build on an image whose history does not name every layer.
        "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "devcluster"}],
    }
    image_json = json.dumps(image, sort_keys=True).encode()
    config_name = f"{hashlib.sha256(image_json).hexdigest()}.json"
    layer_name = f"{digest.hexdigest()}.tar"
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": [layer_name]}]
    temporary = target.with_name(target.name + ".tmp")
    with tarfile.open(temporary, "w") as archive:
        _add(archive, "manifest.json", json.dumps(manifest).encode())
        _add(archive, config_name, image_json)
        if isinstance(layer, Path):
            entry = tarfile.TarInfo(layer_name)
            entry.size = layer.stat().st_size
            with layer.open("rb") as file:
                archive.addfile(entry, file)
        else:
            _add(archive, layer_name, layer)
    temporary.replace(target)


def _add(archive: tarfile.TarFile, name: str, data: bytes, *, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    archive.addfile(entry, io.BytesIO(data))


def write_pause_archive(target: Path, *, program: Path) -> None:
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        _add(archive, "pause", program.read_bytes(), mode=0o755)
    config: dict[str, object] = {"Entrypoint": ["/pause"], "User": "65535:65535"}
    write_archive(target, name=PAUSE_IMAGE, layer=layer.getvalue(), config=config)


@dataclass(frozen=True)
class Archive:
    """What a file holds: `digest` names its content, `names` its images."""

    path: Path
    digest: str
    names: tuple[str, ...]


def read_archive(path: Path) -> Archive:
    """Read only the table of contents; ImageError where the file is no image archive."""
    try:
        with tarfile.open(path) as archive:
            table = _table(archive)
    except FileNotFoundError:
        raise ImageError(f"{path}: no such file") from None
    except (tarfile.TarError, OSError, ValueError) as error:
        raise ImageError(f"{path}: not a readable image archive: {error}") from error
    if table is None:
        raise ImageError(
            f"{path}: holds neither manifest.json nor index.json; make it with "
            "`docker save` or `buildah push IMAGE docker-archive:FILE:NAME`"
        )
    name, data = table
    try:
        names = _docker_names(data) if name == "manifest.json" else _oci_names(data)
    except (AttributeError, KeyError, TypeError) as error:
        raise ImageError(f"{path}: not a readable image archive: {name} {error}") from error
    if not names:
        raise ImageError(
            f"{path}: its image has no name; give it one, as in "
            "`buildah push IMAGE docker-archive:FILE:localhost/NAME:TAG`"
        )
    digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:32]
    return Archive(path, digest, names)


def _table(archive: tarfile.TarFile) -> tuple[str, Any] | None:
    found: dict[str, bytes] = {}
    for member in archive:
        name = member.name.removeprefix("./")
        if name in ("manifest.json", "index.json"):
            file = archive.extractfile(member)
            if file is not None:
                found[name] = file.read()
    for name in ("manifest.json", "index.json"):
        if name in found:
            return name, json.loads(found[name])
    return None


def _docker_names(manifest: Any) -> tuple[str, ...]:
    return tuple(full_name(tag) for image in manifest for tag in image.get("RepoTags") or ())


def _oci_names(index: Any) -> tuple[str, ...]:
    keys = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
    found = []
    for manifest in index.get("manifests", ()):
        annotations = manifest.get("annotations") or {}
        name = next((annotations[key] for key in keys if key in annotations), None)
        if name is not None:
            found.append(full_name(name))
    return tuple(found)


def full_name(name: str) -> str:
    """The name under which containerd keeps it: with a registry part and a tag."""
    first = name.split("/", 1)[0]
    if "/" not in name:
        name = f"docker.io/library/{name}"
    elif "." not in first and ":" not in first and first != "localhost":
        name = f"docker.io/{name}"
    return name if ":" in name.rsplit("/", 1)[-1] or "@" in name else f"{name}:latest"


def _ctr(socket: Path, *arguments: str, timeout: float = 600) -> str:
    result = subprocess.run(
        ["ctr", "--address", str(socket), "--namespace", "k8s.io", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    if result.returncode != 0:
        raise ImageError(f"ctr {' '.join(arguments)}: {result.stderr.strip()}")
    return result.stdout


def runtime_version(socket: Path) -> str:
    """Of the containerd behind a socket; ImageError while it does not answer."""
    return _ctr(socket, "version")


def import_archive(archive: Archive, *, socket: Path) -> bool:
    """Into one node; True if it had to be imported. Returns once the kubelet can use it."""
    label = f'labels."{ARCHIVE_LABEL}"=={archive.digest}'
    present = _ctr(socket, "images", "list", "-q", label).split()
    if set(archive.names) <= set(present):
        return False
    _ctr(socket, "images", "import", "--digests=false", str(archive.path))
    deadline = time.monotonic() + 60
    for name in archive.names:
        while CRI_LABEL not in _ctr(socket, "images", "list", f"name=={name}"):
            if time.monotonic() > deadline:
                raise ImageError(f"{name} was imported but containerd's CRI does not list it")
            time.sleep(0.05)
        _ctr(socket, "images", "label", name, f"{ARCHIVE_LABEL}={archive.digest}")
    return True
