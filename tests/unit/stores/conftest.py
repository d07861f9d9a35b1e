"""A real S3 server, and its credentials in the environment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kit.s3 import S3Server, s3_server


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
