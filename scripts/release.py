"""`make release-check` and the files of a release: one program for a person and for the workflow.

`check` says of each thing that a release needs whether it is so; `build` writes the files into a
directory. What is built twice from one
commit is equal byte for byte: every time in it is the commit's. Must never push, sign or tag:
that is .github/workflows/release.yaml, with rights that nobody has here.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from kit import tools
from rtj_api.version import RELEASE

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "charts" / "resumable-training-operator"
PACKAGES = ("rtj_api", "rtj_operator", "rtj_sidecar", "rtj_cli")
ALSO = (ROOT / "crds" / "resumabletrainingjobs.yaml",)


class NotSo(Exception):
    """What is wrong, and what to do."""


def run(*command: str | Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=ROOT,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode:
        raise NotSo(f"`{' '.join(map(str, command))}` failed:\n{done.stdout[-2000:]}")
    return done.stdout


def commit_time() -> int:
    """Unix seconds of the commit that is released: the only time that a built file may hold."""
    return int(run("git", "log", "-1", "--format=%ct").strip())


# --- what is built ---------------------------------------------------------------------------


def chart_package(out: Path) -> Path:
    """The chart as `helm package` lays it out, but equal in every build of a commit.

    Helm writes the time of packing into the archive; this sorts the members and writes the
    commit's time. Files that .helmignore names stay out.
    """
    target = out / f"{CHART.name}-{RELEASE}.tgz"
    told = (CHART / ".helmignore").read_text().split() if (CHART / ".helmignore").exists() else []
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(CHART.rglob("*")):
            if path.is_file() and not any(path.match(pattern) for pattern in told):
                member = tarfile.TarInfo(f"{CHART.name}/{path.relative_to(CHART)}")
                content = path.read_bytes()
                member.size, member.mtime, member.mode = len(content), commit_time(), 0o644
                archive.addfile(member, io.BytesIO(content))
    with (
        target.open("wb") as raw,
        gzip.GzipFile("", "wb", mtime=commit_time(), fileobj=raw) as packed,
    ):
        packed.write(held.getvalue())
    return target


def wheel(out: Path) -> Path:
    """All four packages in one wheel; hatchling takes the time from SOURCE_DATE_EPOCH."""
    return _wheel(out, ROOT, name="resumable_training_operator")


def library(out: Path) -> Path:
    """The trainer's library, a distribution of its own: no dependency, an older Python."""
    return _wheel(out, ROOT / "trainer_library", name="rtj_trainer")


def _wheel(out: Path, source: Path, *, name: str) -> Path:
    env = os.environ | {"SOURCE_DATE_EPOCH": str(commit_time())}
    words = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", out, source)
    run(*words, env=env)
    return next(out.glob(f"{name}-*.whl"))


def build(out: Path) -> list[Path]:
    """Every file of a release, and SHA256SUMS over them."""
    out.mkdir(parents=True, exist_ok=True)
    files = [chart_package(out), wheel(out), library(out)]
    files += [Path(shutil.copyfile(path, out / path.name)) for path in ALSO]
    sums = out / "SHA256SUMS"
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    sums.write_text("".join(lines), encoding="ascii")
    return [*files, sums]


# --- what must be so ---------------------------------------------------------------------------


def changelog_speaks() -> str:
    words = run(sys.executable, ROOT / "scripts" / "changelog.py")
    return f"{len(words.splitlines())} lines"


def numbers_agree() -> str:
    run(sys.executable, ROOT / "scripts" / "version.py", "--check")
    return RELEASE


def tag_agrees(tag: str | None) -> str:
    if tag is None:
        return "no --tag given: not looked at"
    if tag != f"v{RELEASE}":
        raise NotSo(f"the tag is {tag}, crds/rtj_api/version.py says {RELEASE}: change one of them")
    return tag


def tree_is_clean() -> str:
    if changed := run("git", "status", "--short").strip():
        raise NotSo(f"not committed, so not in a release:\n{changed}")
    return run("git", "rev-parse", "--short", "HEAD").strip()


def generated_files_agree() -> str:
    run(ROOT / "scripts" / "generate", "--check")
    return "as the code says"


def chart_is_sound() -> str:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        first, second = chart_package(Path(one)), chart_package(Path(two))
        if first.read_bytes() != second.read_bytes():
            raise NotSo(
                "two packages of one commit differ: something in the chart is not a plain file"
            )
        run(tools.helm(), "lint", "--strict", first)
        shown = run(tools.helm(), "show", "chart", first)
        for line in (f"version: {RELEASE}", f"appVersion: {RELEASE}"):
            if line not in shown.replace('"', "").splitlines():
                raise NotSo(f"`helm show chart` does not say `{line}`")
        run(tools.helm(), "template", "check", first)
        return f"{first.name}, {first.stat().st_size // 1024} KiB, twice the same"


def wheel_is_sound() -> str:
    return _wheel_is_sound(wheel, PACKAGES)


def library_is_sound() -> str:
    return _wheel_is_sound(library, ("rtj_trainer",))


def _wheel_is_sound(wheel: Callable[[Path], Path], packages: tuple[str, ...]) -> str:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        first, second = wheel(Path(one)), wheel(Path(two))
        if first.read_bytes() != second.read_bytes():
            raise NotSo("two wheels of one commit differ: something in the build reads the clock")
        if f"-{RELEASE}-" not in first.name:
            raise NotSo(f"the wheel is called {first.name}, the release is {RELEASE}")
        held = {name.split("/")[0] for name in zipfile.ZipFile(first).namelist()}
        if missing := set(packages) - held:
            raise NotSo(f"the wheel lacks {', '.join(sorted(missing))}")
        return f"{first.name}, {first.stat().st_size // 1024} KiB, twice the same"


def requirements_are_pinned() -> str:
    files = sorted((ROOT / "requirements").glob("*.txt"))
    for path in files:
        text = path.read_text(encoding="utf-8")
        if "://" in re.sub(r"#.*", "", text):
            raise NotSo(f"{path.name} holds an address: run `make lock`")
        pins = len(re.findall(r"^[A-Za-z0-9._\[\]-]+==", text, re.M))
        if not pins or text.count("--hash=sha256:") < pins:
            raise NotSo(f"{path.name} holds a requirement without a hash: run `make lock`")
    return f"{len(files)} files, all with hashes"


def checks(tag: str | None) -> Iterator[tuple[str, Callable[[], str]]]:
    yield "one number everywhere", numbers_agree
    yield "the tag names it", lambda: tag_agrees(tag)
    yield "the changelog speaks of it", changelog_speaks
    yield "requirements are pinned", requirements_are_pinned
    yield "generated files", generated_files_agree
    yield "the chart", chart_is_sound
    yield "the wheel", wheel_is_sound
    yield "the library's wheel", library_is_sound
    yield "nothing uncommitted", tree_is_clean


def check(tag: str | None) -> int:
    failed = 0
    for name, judge in checks(tag):
        try:
            print(f"ok      {name}: {judge()}", flush=True)
        except (NotSo, tools.ToolMissing, OSError) as error:
            failed += 1
            print(f"FAILED  {name}: {error}", flush=True)
    print(
        f"\n{failed} of the checks failed"
        if failed
        else "\nready: tag it, and the workflow goes on"
    )
    return 1 if failed else 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/release.py", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    judged = commands.add_parser("check", help="what a release needs, thing by thing")
    judged.add_argument("--tag", help="the tag that starts the release, such as v0.1.0")
    built = commands.add_parser("build", help="write the release's files")
    built.add_argument("--out", type=Path, default=ROOT / "dist", help="default: dist/")
    told = parser.parse_args(arguments)
    try:
        if told.command == "check":
            return check(told.tag)
        for path in build(told.out):
            print(path)
    except NotSo as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
