"""The project's two images, built from its own Dockerfile by buildah, as archives for the nodes.

An image is named after the hash of all that goes into it, so that a cluster never runs an older
source under the same name, and nothing is built twice. Must never talk to an image registry.
`python -m kit.images` builds both; `make demo` and the end-to-end tests call `build`.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kit import tools

ROOT = Path(__file__).resolve().parents[2]
CERTIFICATES = Path("/etc/ssl/certs")
KEPT, IN_USE_SECONDS = 3, 900.0

TARGETS: dict[str, tuple[str, ...]] = {
    "operator": ("requirements/operator.txt", "crds/rtj_api", "operator/rtj_operator"),
    "sidecar": (
        "requirements/sidecar.txt",
        "requirements/sidecar-stores.txt",
        "requirements/sidecar-hdfs.txt",
        "crds/rtj_api",
        "trainer_sidecar/rtj_sidecar",
    ),
}
COMMON = ("Dockerfile", ".dockerignore")


class ImageBuildError(RuntimeError):
    """An image could not be built; the message ends with buildah's last lines."""


@dataclass(frozen=True, kw_only=True)
class Image:
    """`reference` is `<repository>:<tag>`; `archive` is a docker-archive that holds it."""

    repository: str
    tag: str
    archive: Path

    @property
    def reference(self) -> str:
        return f"{self.repository}:{self.tag}"


def say_to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def base_archive(*, say: Callable[[str], None] = say_to_stderr) -> Path:
    """The docker-archive of the base image: `$RTJ_BASE_ARCHIVE`, or the cache's, made if absent."""
    if named := os.environ.get("RTJ_BASE_ARCHIVE"):
        return Path(named)
    archive = tools.cache() / "images" / "base.tar"
    if not archive.exists():
        say("making the base image (about a minute)")
        subprocess.run(
            [sys.executable, "-m", "devcluster", "base-image", "--out", str(archive)],
            cwd=ROOT,
            check=True,
        )
    return archive


def base_reference(archive: Path) -> str:
    """The name that the archive gives to its image."""
    name: str = _manifest(archive)["RepoTags"][0]
    return name


def with_user(archive: Path, *, user: str, reference: str, to: Path) -> Path:
    """A copy of a docker-archive whose image runs as `user` by itself, under another name."""
    with tarfile.open(archive) as source, tarfile.open(to, "w") as copy:
        manifest = _manifest(archive)
        config_name = str(manifest["Config"])
        member = source.extractfile(config_name)
        if member is None:
            raise ImageBuildError(f"{archive} has no {config_name}")
        config = json.load(member)
        config.setdefault("config", {})["User"] = user
        text = json.dumps(config).encode()
        digest = hashlib.sha256(text).hexdigest()
        new = {**manifest, "Config": f"{digest}.json", "RepoTags": [reference]}
        for name, data in ((f"{digest}.json", text), ("manifest.json", json.dumps([new]).encode())):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            copy.addfile(entry, io.BytesIO(data))
        for entry in source.getmembers():
            if entry.name not in (config_name, "manifest.json", "repositories"):
                copy.addfile(entry, source.extractfile(entry) if entry.isfile() else None)
    return to


def build(target: str, *, say: Callable[[str], None] = say_to_stderr) -> Image:
    """Build `operator` or `sidecar`; at once when nothing that goes into it has changed.

    Raises `ImageBuildError`, and `kit.tools.ToolMissing` without buildah.
    """
    base = base_archive(say=say)
    with tempfile.TemporaryDirectory(prefix="rtj-image-") as context:
        # What is hashed is what is built, also while someone edits the source.
        _copy_inputs(target, to=Path(context))
        return _build(target, context=Path(context), base=base, say=say)


def _build(target: str, *, context: Path, base: Path, say: Callable[[str], None]) -> Image:
    tag = _key(context=context, base=base)
    image = Image(
        repository=f"localhost/resumable-training-{target}",
        tag=tag,
        archive=tools.cache() / "images" / f"{target}-{tag}.tar",
    )
    with _lock():
        if image.archive.exists():
            os.utime(image.archive)
            return image
        start = time.monotonic()
        say(f"building {image.reference} …")
        _pull_base(base)
        _buildah(
            "bud",
            "--layers",
            "--pull-never",
            "--isolation=chroot",
            "--network=host",
            *_volume(),
            f"--build-arg=BASE={base_reference(base)}",
            f"--target={target}",
            f"--tag={image.reference}",
            str(context),
        )
        partial = image.archive.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        _buildah("push", "--quiet", image.reference, f"docker-archive:{partial}:{image.reference}")
        partial.rename(image.archive)
        _forget_old(target)
        size = image.archive.stat().st_size / 1e6
        say(f"built {image.reference} in {time.monotonic() - start:.1f} s, {size:.0f} MB")
    return image


def _copy_inputs(target: str, *, to: Path) -> None:
    for name in (*COMMON, *TARGETS[target]):
        source, copy = ROOT / name, to / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.is_file():
            shutil.copy2(source, copy)
        elif source.is_dir() and any(source.iterdir()):
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            raise ImageBuildError(f"{source} is empty or not there: nothing to build an image of")


def _key(*, context: Path, base: Path) -> str:
    digest = hashlib.sha256(str(_manifest(base)["Config"]).encode())
    for path in sorted(each for each in context.rglob("*") if each.is_file()):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(context)}\0{content}\0".encode())
    # Not the hash alone: `helm --set` would take one of digits for a number.
    return f"src-{digest.hexdigest()[:12]}"


def _manifest(archive: Path) -> dict[str, list[str] | str]:
    with tarfile.open(archive) as tar:
        member = tar.extractfile("manifest.json")
        if member is None:
            raise ImageBuildError(f"{archive} is no docker-archive: remove it")
        manifest: dict[str, list[str] | str] = json.load(member)[0]
    return manifest


def _pull_base(archive: Path) -> None:
    wanted = str(_manifest(archive)["Config"]).removesuffix(".json")
    there = _buildah("images", "--no-trunc", "--format={{.ID}} {{.Name}}:{{.Tag}}")
    if f"{wanted} {base_reference(archive)}" not in there.replace("sha256:", ""):
        _buildah("pull", "--quiet", f"docker-archive:{archive}")


def _volume() -> list[str]:
    """Packages are fetched inside, with the certificates that this machine trusts."""
    return [f"--volume={CERTIFICATES}:{CERTIFICATES}:ro"] if CERTIFICATES.exists() else []


def _buildah(command: str, *arguments: str) -> str:
    storage = tools.cache() / "images" / "storage"
    done = subprocess.run(
        [
            str(tools.buildah()),
            f"--root={storage}",
            f"--runroot=/run/rtj-buildah-{os.getuid()}",
            "--storage-driver=overlay",
            command,
            *arguments,
        ],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-25:])
        raise ImageBuildError(f"buildah {command} failed with {done.returncode}:\n{tail}")
    return done.stdout


@contextlib.contextmanager
def _lock() -> Iterator[None]:
    """One build at a time on this machine; the second finds what the first has made."""
    path = tools.cache() / "images" / "build.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _forget_old(target: str) -> None:
    archives = sorted(
        (tools.cache() / "images").glob(f"{target}-*.tar"), key=lambda path: path.stat().st_mtime
    )
    for old in archives[:-KEPT]:
        # Another run on this machine may be about to load it: each use touches the archive.
        if time.time() - old.stat().st_mtime < IN_USE_SECONDS:
            continue
        old.unlink()
        tag = old.stem.removeprefix(f"{target}-")
        with contextlib.suppress(ImageBuildError):
            _buildah("rmi", f"localhost/resumable-training-{target}:{tag}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="kit.images", description="Build the images.")
    parser.add_argument("target", nargs="*", help=f"default: {' '.join(TARGETS)}")
    options = parser.parse_args(arguments)
    for target in options.target or TARGETS:
        if target not in TARGETS:
            parser.error(f"{target} is none of {', '.join(TARGETS)}")
        image = build(target)
        print(f"{image.reference}\t{image.archive}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
