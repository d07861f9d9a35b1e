"""The stores that must keep the same promises."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.s3 import S3Server, s3_server
from kit.stored import MIB
from rtj_sidecar.stores.base import Store
from rtj_sidecar.stores.open import open_store
from rtj_sidecar.stores.s3 import S3Store


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def credentials(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    for name, value in s3.environment().items():
        if name != "AWS_ENDPOINT_URL_S3":
            monkeypatch.setenv(name, value)
    return s3


@pytest.fixture(params=["file", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, credentials: S3Server) -> Iterator[Store]:
    if request.param == "file":
        opened: Store = open_store((tmp_path / "a store").as_uri())
    else:
        # Small parts, so that a test's file has several.
        opened = S3Store(
            bucket=credentials.bucket,
            prefix=f"t{tmp_path.name}",
            endpoint=credentials.endpoint,
            part_size=5 * MIB,
            patience_s=5,
            transfer_patience_s=5,
        )
    yield opened
    opened.close()
