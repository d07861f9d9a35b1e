"""A mounted Secret that changes is taken up by the next request; without one, as boto3 does."""

from __future__ import annotations

from pathlib import Path

import pytest
from botocore.exceptions import NoCredentialsError
from rtj_sidecar.stores.s3_credentials import session_of


def told(session) -> tuple[str, str, str | None]:
    found = session.get_credentials().get_frozen_credentials()
    return found.access_key, found.secret_key, found.token


def write(directory: Path, **values: str) -> None:
    for name, value in values.items():
        (directory / name).write_text(value)


@pytest.fixture(autouse=True)
def nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def test_a_changed_secret_is_read_again(tmp_path: Path) -> None:
    write(tmp_path, AWS_ACCESS_KEY_ID="one\n", AWS_SECRET_ACCESS_KEY="wrong")
    session = session_of(tmp_path)
    assert told(session) == ("one", "wrong", None)
    write(tmp_path, AWS_SECRET_ACCESS_KEY="right", AWS_SESSION_TOKEN="token")
    assert told(session) == ("one", "right", "token")


def test_keys_that_come_late_are_found(tmp_path: Path) -> None:
    session = session_of(tmp_path)
    with pytest.raises(NoCredentialsError):
        told(session)
    write(tmp_path, AWS_ACCESS_KEY_ID="one", AWS_SECRET_ACCESS_KEY="two")
    assert told(session) == ("one", "two", None)


def test_a_client_made_before_there_were_any_takes_them_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The node's metadata service was slow when the pod began."""
    client = session_of(None).client("s3", region_name="us-east-1")

    def signed() -> str:
        return client.generate_presigned_url("get_object", Params={"Bucket": "b", "Key": "k"})

    with pytest.raises(NoCredentialsError):
        signed()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "found-later")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    assert "found-later" in signed()


def test_without_files_the_environment_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of the environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    assert told(session_of(tmp_path))[0] == "of the environment"
    assert told(session_of(None))[0] == "of the environment"
    write(tmp_path, AWS_ACCESS_KEY_ID="of the Secret", AWS_SECRET_ACCESS_KEY="y")
    assert told(session_of(tmp_path))[0] == "of the Secret"
