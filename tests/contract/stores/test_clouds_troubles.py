"""What a user gets wrong with a store of another cloud: the message names the remedy, and nothing
that is written anywhere holds a secret."""

from __future__ import annotations

import base64
import json
import logging
import traceback
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from azure.storage.blob import ContainerSasPermissions, generate_container_sas
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from kit import tls
from kit.clouds import AZURE_ACCOUNT, AZURE_KEY, Cloud
from kit.fault_proxy import FaultProxy
from kit.stored import problem
from kit.token_server import token_server
from rtj_api.reasons import Reason
from rtj_sidecar.stores.base import IfAbsent, Store, StoreProblem
from rtj_sidecar.stores.open import open_store

Open = Callable[..., Store]


def only(cloud: Cloud, scheme: str) -> None:
    if cloud.scheme != scheme:
        pytest.skip(f"of {scheme}:// alone")


def sas(*, ends: timedelta) -> str:
    """A shared access signature of Azure for the container."""
    return generate_container_sas(
        AZURE_ACCOUNT,
        "checkpoints",
        account_key=AZURE_KEY,
        permission=ContainerSasPermissions(read=True, write=True, list=True, delete=True),
        start=datetime.now(UTC) - timedelta(days=2),
        expiry=datetime.now(UTC) + ends,
    )


@pytest.fixture(scope="module")
def private_key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


def service_account(token_uri: str, private_key: str) -> dict[str, str]:
    info = {
        "type": "service_account",
        "project_id": "p",
        "private_key_id": "1",
        "private_key": private_key,
        "client_email": "trainer@p.iam.gserviceaccount.com",
        "token_uri": token_uri,
    }
    return {"GOOGLE_APPLICATION_CREDENTIALS": json.dumps(info)}


def test_a_container_that_is_not_there(opened: Open, cloud: Cloud) -> None:
    if cloud.scheme == "hdfs":
        pytest.skip("a directory is made where there is none")
    absent = opened(url=f"{cloud.scheme}://nowhere/x")
    for call in (
        lambda: absent.put("a", b"", condition=IfAbsent()),
        lambda: absent.get("a"),
        lambda: absent.head("a"),
        lambda: list(absent.list("")),
    ):
        found = problem(call)
        assert (found.reason, found.transient) == (Reason.BUCKET_MISSING, False)
        assert "nowhere" in found.message
        assert "checkpoint.store.url" in found.message


def test_nobody_listens(opened: Open, cloud: Cloud) -> None:
    closed = opened(endpoint="http://127.0.0.1:9", patience_s=0.5)
    found = problem(lambda: closed.get("a"))
    assert (found.reason, found.transient) == (Reason.STORE_UNREACHABLE, True)
    assert "checkpoint.store.endpoint" in found.message


def test_a_certificate_that_nobody_vouches_for(
    opened: Open, cloud: Cloud, private_key: str, tmp_path: Path
) -> None:
    where = urlsplit(cloud.endpoint)
    authority, certificate = tls.make_authority(tmp_path, address="127.0.0.1")
    behind = ("127.0.0.1", where.port or 0)
    with (
        tls.tls_front(certificate=certificate, behind=behind, address="127.0.0.1") as port,
        token_server(200, {"access_token": "t", "expires_in": 3600}) as uri,
    ):
        at = f"https://127.0.0.1:{port}{where.path}"
        # Google's takes no anonymous requests over TLS.
        secret = service_account(uri, private_key) if cloud.scheme == "gs" else cloud.secret
        store = opened(endpoint=at, secret=secret, patience_s=30)
        found = problem(lambda: store.head("a"))
        assert (found.reason, found.transient) == (Reason.STORE_UNREACHABLE, False)
        assert "checkpoint.store.caBundle" in found.message
        trusting = open_store(
            cloud.url,
            endpoint=at,
            ca_file=str(authority),
            credentials_dir=tmp_path / "secret-0",
            patience_s=5,
        )
        assert trusting.head("a") is None


@pytest.mark.parametrize(
    ("secret", "reason", "says"),
    [
        ({"AZURE_STORAGE_KEY": base64.b64encode(b"another").decode()}, "REFUSED", "STORAGE_KEY"),
        ({"AZURE_STORAGE_KEY": "no base64!"}, "MISSING", "AZURE_STORAGE_KEY"),
        ({"AZURE_STORAGE_SAS_TOKEN": sas(ends=-timedelta(days=1))}, "REFUSED", "expired"),
        ({"AZURE_STORAGE_SAS_TOKEN": sas(ends=timedelta(days=1))[:-9]}, "REFUSED", "SAS_TOKEN"),
        ({"AZURE_STORAGE_CONNECTION_STRING": "nonsense"}, "MISSING", "AZURE_STORAGE_KEY"),
        ({}, "MISSING", "AZURE_STORAGE_ACCOUNT"),
    ],
    ids=["wrong-key", "no-key", "expired", "wrong-sas", "no-string", "nothing"],
)
def test_credentials_of_azure(
    opened: Open, cloud: Cloud, secret: dict[str, str], reason: str, says: str
) -> None:
    only(cloud, "az")
    account = {"AZURE_STORAGE_ACCOUNT": AZURE_ACCOUNT} if secret else {}
    found = problem(lambda: opened(secret=account | secret, patience_s=0.5).put("a", b"1"))
    assert found.reason == Reason[f"CREDENTIALS_{reason}"]
    assert says in found.message


def test_a_signature_of_azure_that_is_in_force(opened: Open, cloud: Cloud) -> None:
    only(cloud, "az")
    token = {"AZURE_STORAGE_SAS_TOKEN": sas(ends=timedelta(days=1))}
    store = opened(secret={"AZURE_STORAGE_ACCOUNT": AZURE_ACCOUNT} | token)
    store.put("a", b"1")
    assert [item.key for item in store.list("")] == ["a"]


@pytest.mark.parametrize(
    ("error", "reason", "says"),
    [
        ("Invalid JWT Signature.", Reason.CREDENTIALS_REFUSED, "GOOGLE_APPLICATION_CREDENTIALS"),
        (
            "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable "
            "timeframe. Check your iat and exp values in the JWT claim.",
            Reason.STORE_UNREACHABLE,
            "clock",
        ),
    ],
    ids=["wrong-key", "clock"],
)
def test_credentials_of_google(
    opened: Open, cloud: Cloud, private_key: str, error: str, reason: Reason, says: str
) -> None:
    only(cloud, "gs")
    with token_server(400, {"error": "invalid_grant", "error_description": error}) as uri:
        store = opened(secret=service_account(uri, private_key), patience_s=0.5)
        found = problem(lambda: store.put("a", b"1"))
    assert found.reason == reason
    assert says in found.message


def test_a_token_of_google_is_fetched_and_used(
    opened: Open, cloud: Cloud, private_key: str
) -> None:
    only(cloud, "gs")
    answer = {"access_token": "a-secret-token", "expires_in": 3600, "token_type": "Bearer"}
    with token_server(200, answer) as uri:
        store = opened(secret=service_account(uri, private_key))
        store.put("a", b"1")
        assert store.head("a") is not None


@pytest.mark.parametrize("value", ["{", '{"type": "service_account"}', '{"type": "unknown"}'])
def test_what_is_no_key_of_google(opened: Open, cloud: Cloud, value: str) -> None:
    only(cloud, "gs")
    store = opened(secret={"GOOGLE_APPLICATION_CREDENTIALS": value})
    found = problem(lambda: store.get("a"))
    assert found.reason == Reason.CREDENTIALS_REFUSED
    assert "GOOGLE_APPLICATION_CREDENTIALS" in found.message


@pytest.mark.parametrize(
    "secret",
    [{"HADOOP_USER_NAME": "stranger"}, {}],
    ids=["stranger", "nobody"],
)
def test_credentials_of_hadoop(opened: Open, cloud: Cloud, secret: dict[str, str]) -> None:
    only(cloud, "hdfs")
    store = opened(url="hdfs://127.0.0.1/", secret=secret, patience_s=0.5)
    found = problem(lambda: store.put("forbidden", b"1"))
    assert found.reason == Reason.CREDENTIALS_REFUSED
    assert "HADOOP_USER_NAME" in found.message


def test_a_secret_that_changes_is_taken_up(
    opened: Open, cloud: Cloud, proxy: FaultProxy, tmp_path: Path
) -> None:
    only(cloud, "az")
    wrong = {"AZURE_STORAGE_KEY": base64.b64encode(b"another").decode()}
    store = opened(secret={"AZURE_STORAGE_ACCOUNT": AZURE_ACCOUNT} | wrong)
    assert problem(lambda: store.put("a", b"1")).reason == Reason.CREDENTIALS_REFUSED
    (tmp_path / "secret-0" / "AZURE_STORAGE_KEY").write_text(AZURE_KEY)
    store.put("a", b"1")
    found = store.get("a")
    assert found is not None
    assert found.data == b"1"


def test_no_secret_is_written_anywhere(
    opened: Open,
    cloud: Cloud,
    private_key: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """All that the driver and its library log at DEBUG, and what exceptions say."""
    token = "a-secret-access-token"
    source = tmp_path / "source"
    source.write_bytes(b"z" * (9 << 20))
    told: list[str] = []

    def use(store: Store) -> None:
        try:
            store.put("a", b"1", condition=IfAbsent())
            store.get("a")
            list(store.list(""))
            sent = store.upload_file("f", source)
            store.download("f", tmp_path / "back", size=sent.size, sha256=sent.sha256)
        except StoreProblem as error:
            told.append("".join(traceback.format_exception(error)))
            told.append(f"{error!r} {vars(error)}")

    with (
        caplog.at_level(logging.DEBUG),
        token_server(200, {"access_token": token, "expires_in": 3600}) as granting,
        token_server(400, {"error": "invalid_grant", "error_description": token}) as refusing,
    ):
        signature = sas(ends=timedelta(days=1))
        secrets = {
            "az": [
                {"AZURE_STORAGE_ACCOUNT": AZURE_ACCOUNT, "AZURE_STORAGE_KEY": AZURE_KEY},
                {"AZURE_STORAGE_ACCOUNT": AZURE_ACCOUNT, "AZURE_STORAGE_SAS_TOKEN": signature},
                {"AZURE_STORAGE_ACCOUNT": AZURE_ACCOUNT, "AZURE_STORAGE_KEY": AZURE_KEY[4:]},
                {"AZURE_STORAGE_CONNECTION_STRING": f"AccountKey={AZURE_KEY}"},
            ],
            "gs": [
                service_account(granting, private_key),
                service_account(refusing, private_key),
                service_account(refusing, private_key[:200]),
            ],
            "hdfs": [{"HADOOP_DELEGATION_TOKEN": token}, cloud.secret],
        }[cloud.scheme]
        for secret in secrets:
            use(opened(secret=secret, patience_s=2))
            use(opened(secret=secret, endpoint="http://127.0.0.1:9", patience_s=0.2))
    written = caplog.text + "".join(told) + "".join(str(r.__dict__) for r in caplog.records)
    assert told, "some of it failed, so messages were read too"
    key_line = private_key.splitlines()[3]
    for value in (token, AZURE_KEY, AZURE_KEY[4:], signature.rpartition("sig=")[2][:20], key_line):
        assert value not in written
