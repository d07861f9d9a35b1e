"""A small Debian root file system as an image archive, for machines without a registry.

Packages come from the mirror that this machine's apt is set up with; no host is named here. The
result is cached by its arguments and this file's own text.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from devcluster import binaries, images, requirements
from devcluster.processes import PATH

SUITE = "bookworm"
DEFAULT_NAME = f"localhost/rtj-base:{SUITE}"
# Nothing at run time reads these; /usr/share/locale is not locale data that Python needs.
STRIPPED = (
    *("usr/share/doc", "usr/share/man", "usr/share/info", "usr/share/locale", "usr/share/lintian"),
    *("var/cache", "var/lib/apt/lists", "var/log", "tmp"),
    *("dev", "proc", "sys", "run"),
)


class BaseImageError(RuntimeError):
    """The image could not be made; the message says what to do."""


def make(
    out: Path,
    *,
    include: Sequence[str],
    name: str = DEFAULT_NAME,
    say: Callable[[str], None],
) -> None:
    """Write the docker-archive `out` holding `name`, from the cache where it lies there."""
    cached = binaries.cache_root() / "images" / f"{_key(include, name)}.tar"
    if not cached.exists():
        _check()
        cached.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="base-", dir=cached.parent) as scratch:
            root, layer = Path(scratch) / "root", Path(scratch) / "layer.tar"
            say(f"debootstrap {SUITE} with {', '.join(include)} (about a minute)")
            _debootstrap(root, include)
            _pack(root, layer)
            config: dict[str, object] = {
                "Cmd": ["/bin/bash"],
                "Env": [f"PATH={PATH}", "LANG=C.UTF-8"],
            }
            images.write_archive(cached, name=name, layer=layer, config=config)
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(out.name + ".tmp")
    shutil.copyfile(cached, temporary)
    temporary.replace(out)
    say(f"{out}: {name}, {out.stat().st_size / 1e6:.0f} MB")


def _key(include: Sequence[str], name: str) -> str:
    code = [Path(made_by).read_text(encoding="utf-8") for made_by in (__file__, images.__file__)]
    parts = (*code, name, *sorted(include))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _check() -> None:
    found = [item for item in requirements.missing(build=False) if item.what == "root"]
    if requirements.program("debootstrap") is None:
        found.append(requirements.Missing("debootstrap", "apt-get install debootstrap"))
    if found:
        raise BaseImageError(requirements.explained(found))


def mirror() -> str:
    """The URI that apt fetches SUITE's main component from."""
    output = subprocess.run(
        [
            *("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)"),
            "Created-By: Packages",
        ],
        capture_output=True,
        text=True,
    ).stdout
    for line in output.splitlines():
        uri, release, component = line.split()
        if release == SUITE and component == "main":
            return uri
    raise BaseImageError(
        f"apt is not set up for {SUITE} main; "
        "add it to /etc/apt/sources.list.d and run apt-get update"
    )


def _debootstrap(root: Path, include: Sequence[str]) -> None:
    command = ["debootstrap", "--variant=minbase"]
    if include:
        command.append(f"--include={','.join(include)}")
    result = subprocess.run([*command, SUITE, str(root), mirror()], capture_output=True, text=True)
    if result.returncode != 0:
        last = "\n".join(result.stdout.splitlines()[-5:] + result.stderr.splitlines()[-5:])
        raise BaseImageError(f"debootstrap failed:\n{last}")


def _pack(root: Path, layer: Path) -> None:
    def kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        path = entry.name
        inside = any(path.startswith(f"{directory}/") for directory in STRIPPED)
        # Python's own caches are made again where they are missing.
        return None if inside or "/__pycache__" in path else entry

    with tarfile.open(layer, "w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted(root.iterdir()):
            archive.add(path, arcname=path.name, filter=kept)
