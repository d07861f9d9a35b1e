"""The two images hold what they need to run, and nothing that only building needs."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import images, tools

pytestmark = [
    pytest.mark.contract,
    pytest.mark.skipif(
        os.getuid() != 0 and not os.environ.get("CI"), reason="buildah in a chroot needs root"
    ),
]


def buildah(*arguments: str) -> str:
    storage = tools.cache() / "images" / "storage"
    command = [tools.buildah(), f"--root={storage}", f"--runroot=/run/rtj-buildah-{os.getuid()}"]
    done = subprocess.run(
        [*command, "--storage-driver=overlay", *arguments],
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module", params=list(images.TARGETS))
def container(request: pytest.FixtureRequest) -> Iterator[tuple[str, str, images.Image]]:
    image = images.build(request.param)
    buildah("pull", "--quiet", f"docker-archive:{image.archive}")
    name = buildah("from", "--pull-never", image.reference).strip()
    try:
        yield request.param, name, image
    finally:
        buildah("rm", name)


def python(container: str, code: str) -> str:
    return buildah("run", "--isolation=chroot", container, "--", "python3", "-c", code)


def test_it_starts_the_right_module_as_the_right_user(
    container: tuple[str, str, images.Image],
) -> None:
    target, name, _ = container
    config = json.loads(buildah("inspect", name))["OCIv1"]["config"]
    assert config["Entrypoint"] == ["python3", "-m", f"rtj_{target}"]
    assert config.get("User", "") == {"operator": "65532:65532", "sidecar": ""}[target]
    assert python(name, "import os; print(os.getuid())").strip() == (
        "65532" if target == "operator" else "0"
    )


PROBES = {
    "operator": (
        "import kopf, kubernetes.aio.client, aiohttp, prometheus_client, rtj_api, rtj_operator",
        ("pip", "boto3", "rtj_sidecar", "torch"),
    ),
    # The client shows that the descriptions of S3 and STS were not cut away with the others.
    "sidecar": (
        "import awscrt.checksums, aiohttp, boto3, rtj_api, rtj_sidecar\n"
        "for name in ('s3', 'sts', 'sso', 'sso-oidc'):\n"
        "    boto3.client(name, region_name='us-east-1')",
        ("pip", "kubernetes", "kopf", "rtj_operator", "torch"),
    ),
}


def test_it_imports_what_it_needs_and_holds_nothing_else(
    container: tuple[str, str, images.Image],
) -> None:
    target, name, _ = container
    needed, absent = PROBES[target]
    python(name, needed)
    found = python(
        name,
        "import importlib.util, json\n"
        f"print(json.dumps([m for m in {absent!r} if importlib.util.find_spec(m)]))",
    )
    assert json.loads(found) == []


@pytest.mark.parametrize(
    ("module", "place"),
    [("rtj_api", "/opt/rtj/app/rtj_api/"), ("aiohttp", "/opt/rtj/packages/"), ("asyncio", "/usr/")],
)
def test_what_it_imports_is_compiled(
    container: tuple[str, str, images.Image], module: str, place: str
) -> None:
    """The application, its packages, and what they use of the base's own library."""
    _, name, _ = container
    code = f"import os, {module} as m; print(os.path.exists(m.__cached__), m.__cached__)"
    there, path = python(name, code).split()
    assert there == "True"
    assert path.startswith(place)


def test_the_name_changes_with_the_source_and_not_otherwise(tmp_path: Path) -> None:
    context = tmp_path / "context"
    images._copy_inputs("sidecar", to=context)
    base = images.base_archive()
    first = images._key(context=context, base=base)
    assert images._key(context=context, base=base) == first
    (context / "trainer_sidecar" / "rtj_sidecar" / "__init__.py").write_text("# other\n")
    assert images._key(context=context, base=base) != first
