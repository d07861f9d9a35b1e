"""Servers of other clouds' stores, fetched once by their languages' package clients.

azurite by npm, fake-gcs-server built by go, Hadoop's own HDFS by maven, each pinned, in the cache
of `kit.tools`. Must never run what was fetched before it is whole: it is made beside its place and
renamed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from kit.tools import ToolMissing, cache

AZURITE = "3.35.0"
FAKE_GCS = "v1.56.1"
HADOOP = "3.4.2"
_DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
    "<type>{}</type></dependency>"
)
_HADOOP_PARTS = (
    ("hadoop-common", "jar"),
    ("hadoop-hdfs", "jar"),
    ("hadoop-hdfs-client", "jar"),
    ("hadoop-common", "test-jar"),
    ("hadoop-hdfs", "test-jar"),
)
_POM = (
    "<project><modelVersion>4.0.0</modelVersion>"
    "<groupId>rtj</groupId><artifactId>hdfs</artifactId><version>1</version><dependencies>"
    + "".join(_DEPENDENCY.format("org.apache.hadoop", n, HADOOP, t) for n, t in _HADOOP_PARTS)
    + _DEPENDENCY.format("junit", "junit", "4.13.2", "jar")
    + _DEPENDENCY.format("org.mockito", "mockito-core", "4.11.0", "jar")
    + "</dependencies></project>"
)


def azurite() -> list[Path]:
    """The command that runs azurite's blob service (some 25 s and 190 MB, once)."""
    node = _need("node", "apt install nodejs npm")
    made = cache() / "tools" / f"azurite-{AZURITE}"
    if not made.exists():
        npm = _need("npm", "apt install npm")
        _make(
            made,
            [str(npm), "install", "--silent", "--no-audit", "--no-fund", f"azurite@{AZURITE}"],
            "npm's set-up",
        )
    return [node, made / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"]


def fake_gcs_server() -> Path:
    """fake-gcs-server, built on the first call (a minute, 50 MB)."""
    made = cache() / "tools" / f"fake-gcs-server-{FAKE_GCS}"
    if not made.exists():
        go = _need("go", "install Go 1.25 or newer")
        command = [str(go), "install", f"github.com/fsouza/fake-gcs-server@{FAKE_GCS}"]
        # The working directory becomes the place that go installs to.
        _make(made, command, "Go's module proxy", {"GOBIN": "."})
    return made / "fake-gcs-server"


def hadoop() -> tuple[Path, list[Path]]:
    """(java, the jars of a small Hadoop) (a minute and 90 MB, once)."""
    java = _need("java", "apt install default-jre-headless")
    made = cache() / "tools" / f"hadoop-{HADOOP}"
    if not made.exists():
        maven = _need("mvn", "apt install maven")
        _make(
            made,
            [str(maven), "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"],
            "maven's set-up",
            files={"pom.xml": _POM},
        )
    return java, sorted((made / "jars").glob("*.jar"))


def _need(name: str, remedy: str) -> Path:
    found = shutil.which(name)
    if found is None:
        raise ToolMissing(f"{name} is not installed: {remedy}")
    return Path(found)


def _make(
    target: Path,
    command: Sequence[str],
    check: str,
    environment: Mapping[str, str] | None = None,
    *,
    files: Mapping[str, str] | None = None,
) -> None:
    print(f"fetching {target.name} …", file=sys.stderr, flush=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=target.parent))
    try:
        for name, text in (files or {}).items():
            (work / name).write_text(text)
        settings = {
            name: str(work) if value == "." else value
            for name, value in (environment or {}).items()
        }
        done = subprocess.run(
            command, cwd=work, text=True, capture_output=True, env=os.environ | settings
        )
        if done.returncode:
            said = (done.stderr or done.stdout).strip()[-2000:]
            raise ToolMissing(f"{' '.join(command)} failed; check {check}:\n{said}")
        try:
            work.rename(target)
        except OSError:
            if not target.exists():  # another process was first
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def main() -> int:
    """Fetch what CI's tiers need; `python -m kit.cloud_tools`."""
    azurite()
    fake_gcs_server()
    return 0


if __name__ == "__main__":
    sys.exit(main())
