"""Build Kubernetes, etcd, CoreDNS and the pause program from pinned Go modules, once.

The result is cached outside the tree, keyed by everything that decides it, and never changed in
place: a build happens in a temporary directory that is renamed when whole.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from devcluster import requirements

GO_DIR = Path(__file__).with_name("go")
KUBERNETES_VERSION = "1.34.4"
_VERSION_PACKAGE = "k8s.io/component-base/version"
_MAJOR, _MINOR, _ = KUBERNETES_VERSION.split(".")

Say = Callable[[str], None]


class BuildError(RuntimeError):
    """`go build` failed; the message holds its last lines."""


@dataclass(frozen=True)
class Module:
    """One go.mod under `go/` and the programs (name -> Go package) built from it."""

    name: str
    programs: dict[str, str]
    ldflags: str = "-s -w"
    minutes: str = "seconds"


MODULES = (
    Module("pause", {"pause": "."}),
    Module(
        "kubernetes",
        {
            "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
            "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
            "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
            "kubelet": "k8s.io/kubernetes/cmd/kubelet",
            "kube-proxy": "k8s.io/kubernetes/cmd/kube-proxy",
            "kubectl": "k8s.io/kubernetes/cmd/kubectl",
            "etcd": "go.etcd.io/etcd/server/v3",
        },
        ldflags="-s -w "
        f"-X {_VERSION_PACKAGE}.gitVersion=v{KUBERNETES_VERSION} "
        f"-X {_VERSION_PACKAGE}.gitMajor={_MAJOR} -X {_VERSION_PACKAGE}.gitMinor={_MINOR}",
        minutes="about 6 minutes on two cores",
    ),
    Module(
        "coredns", {"coredns": "github.com/coredns/coredns"}, minutes="about a minute and a half"
    ),
)
BUILD_FLAGS = ("-trimpath", "-buildvcs=false", "-mod=readonly")


def cache_root() -> Path:
    """$DEVCLUSTER_CACHE, else $RTJ_CACHE/devcluster, else ~/.cache/rtj/devcluster."""
    if own := os.environ.get("DEVCLUSTER_CACHE"):
        return Path(own)
    shared = os.environ.get("RTJ_CACHE")
    return (Path(shared) if shared else Path.home() / ".cache" / "rtj") / "devcluster"


def key(module: Module) -> str:
    """Hash of go.mod, go.sum, our sources, flags and packages."""
    digest = hashlib.sha256()
    for path in sorted((GO_DIR / module.name).iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    parts = (*BUILD_FLAGS, module.ldflags, *module.programs, *module.programs.values())
    digest.update("\0".join(parts).encode())
    return digest.hexdigest()[:16]


def directory(module: Module) -> Path:
    return cache_root() / "bin" / key(module)


def cached(module: Module) -> bool:
    return all((directory(module) / program).is_file() for program in module.programs)


def all_cached() -> bool:
    return all(cached(module) for module in MODULES)


def path(program: str) -> Path:
    """Where a built program lies, built or not."""
    for module in MODULES:
        if program in module.programs:
            return directory(module) / program
    raise KeyError(program)


def ensure(say: Say) -> None:
    """Build what is not cached, telling of progress; BuildError where Go fails."""
    for module in MODULES:
        if cached(module):
            continue
        with _build_lock(say):
            if not cached(module):
                _build(module, say)


@contextmanager
def _build_lock(say: Say) -> Iterator[None]:
    root = cache_root()
    root.mkdir(parents=True, exist_ok=True)
    handle = os.open(root, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process is building the binaries; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _build(module: Module, say: Say) -> None:
    say(f"building {module.name} from Go modules, once ({module.minutes})")
    target = directory(module)
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="build-", dir=target.parent))
    try:
        for number, (program, package) in enumerate(module.programs.items(), start=1):
            label = f"{module.name} {number}/{len(module.programs)}: {program}"
            started = time.monotonic()
            with _heartbeat(label, say):
                _go_build(module, package=package, output=scratch / program)
            size = (scratch / program).stat().st_size / 1e6
            say(f"  {label}: {size:.0f} MB in {time.monotonic() - started:.0f} s")
        scratch.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        scratch.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _go_build(module: Module, *, package: str, output: Path) -> None:
    go = requirements.go_program()
    if go is None:
        raise BuildError(requirements.explained(requirements.missing_go()))
    environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": ""}
    result = subprocess.run(
        [go, "build", *BUILD_FLAGS, "-ldflags", module.ldflags, "-o", str(output), package],
        cwd=GO_DIR / module.name,
        env=environment,
        capture_output=True,
        text=True,
    )
    if result.returncode != 0:
        last = "\n".join(result.stderr.splitlines()[-15:])
        raise BuildError(f"go build {package} (in devcluster/go/{module.name}) failed:\n{last}")


@contextmanager
def _heartbeat(label: str, say: Say, *, every: float = 20) -> Iterator[None]:
    """Says every so often that a silent step still runs."""
    done = threading.Event()
    started = time.monotonic()

    def beat() -> None:
        while not done.wait(every):
            say(f"  {label}: still compiling, {time.monotonic() - started:.0f} s")

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
