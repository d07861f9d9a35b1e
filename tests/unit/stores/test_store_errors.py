"""Which errors of the store clients end a call at once, and which are worth another try."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
import requests
from azure.core import exceptions as core
from azure.identity import CredentialUnavailableError
from botocore import exceptions as boto
from botocore.credentials import DeferredRefreshableCredentials
from google.api_core import exceptions as api
from google.auth import exceptions as auth
from hdfs import HdfsError
from kit import tls
from kit.s3 import S3Server
from kit.stored import problem
from rtj_api.reasons import Reason
from rtj_sidecar.stores import azure_errors, gcs_errors, s3_errors, webhdfs_errors
from rtj_sidecar.stores.base import StoreProblem
from rtj_sidecar.stores.open import open_store
from rtj_sidecar.stores.service_errors import unforeseen

NOT_TRUSTED = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: Hostname mismatch"
NO_TLS = "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)"
OTHER_KEY = "[X509: KEY_VALUES_MISMATCH] key values mismatch (_ssl.c:4155)"
OTHER_NAME = "hostname 's3' doesn't match 'localhost'"
CUT = "[SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred in violation of protocol"


def of_s3(error: Exception) -> Exception:
    place = s3_errors.Place("b", "https://s3", None)
    return s3_errors.explain(error, operation="put_object", key="k", place=place)


def of_gs(error: Exception) -> Exception:
    place = gcs_errors.Place("b", None)
    return gcs_errors.explain(error, operation="write", key="k", place=place)


def of_az(error: Exception) -> Exception:
    place = azure_errors.Place("c", None)
    return azure_errors.explain(error, operation="write", key="k", place=place)


def of_hdfs(error: Exception) -> Exception:
    place = webhdfs_errors.Place("namenode", "http://namenode:9870")
    return webhdfs_errors.explain(error, operation="write", key="k", place=place)


def answered(code: str, status: int = 400) -> boto.ClientError:
    told = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return boto.ClientError(told, "PutObject")  # type: ignore[arg-type]


def by_boto(text: str) -> Exception:
    return boto.SSLError(endpoint_url="https://s3", error=text)


def by_requests(text: str) -> Exception:
    return requests.exceptions.SSLError(text)


def by_google(text: str) -> Exception:
    return auth.TransportError(by_requests(text))


def by_azure(text: str) -> Exception:
    inner = by_requests(text)
    return core.ServiceRequestError(inner, error=inner)


OF_TLS = [
    (of_s3, by_boto),
    (of_gs, by_requests),
    (of_gs, by_google),
    (of_az, by_azure),
    (of_hdfs, by_requests),
]


@pytest.mark.parametrize(("explain", "made"), OF_TLS)
@pytest.mark.parametrize(
    ("text", "reason", "transient", "says"),
    [
        (NOT_TRUSTED, Reason.STORE_UNREACHABLE, False, "checkpoint.store.caBundle"),
        (NO_TLS, Reason.INVALID_SPEC, False, "write http://"),
        (CUT, Reason.STORE_UNREACHABLE, True, "does not answer"),
        (OTHER_KEY, Reason.STORE_UNREACHABLE, True, "does not answer"),
        (OTHER_NAME, Reason.STORE_UNREACHABLE, False, "certified name"),
    ],
    ids=["not trusted", "no TLS", "cut", "key of another certificate", "another name"],
)
def test_a_certificate_ends_it_and_a_cut_connection_does_not(
    explain: Callable[[Exception], Exception],
    made: Callable[[str], Exception],
    text: str,
    reason: Reason,
    transient: bool,
    says: str,
) -> None:
    found = explain(made(text))
    assert isinstance(found, StoreProblem)
    assert (found.reason, found.transient) == (reason, transient)
    assert says in found.message


HEADER = requests.exceptions.InvalidHeader("Bearer a-secret\n")
FOR_GOOD = [
    (of_s3, answered("InvalidAccessKeyId", 403), Reason.CREDENTIALS_REFUSED),
    (of_s3, answered("InvalidIdentityToken"), Reason.CREDENTIALS_REFUSED),
    (of_s3, answered("NoSuchBucket", 404), Reason.BUCKET_MISSING),
    (of_s3, boto.NoCredentialsError(), Reason.CREDENTIALS_MISSING),
    (of_s3, boto.ProfileNotFound(profile="a-secret"), Reason.INVALID_SPEC),
    (of_s3, boto.ConfigParseError(path="/x"), Reason.INVALID_SPEC),
    (of_s3, boto.InvalidConfigError(error_msg="a-secret"), Reason.INVALID_SPEC),
    (of_gs, api.Forbidden("a-secret"), Reason.CREDENTIALS_REFUSED),
    (of_gs, api.Unauthorized("a-secret"), Reason.CREDENTIALS_REFUSED),
    (of_gs, auth.RefreshError("invalid_grant: account not found"), Reason.CREDENTIALS_REFUSED),
    (of_gs, auth.DefaultCredentialsError("a-secret"), Reason.CREDENTIALS_MISSING),
    (of_gs, HEADER, Reason.CREDENTIALS_REFUSED),
    (of_gs, requests.exceptions.InvalidURL("http://a-secret"), Reason.INVALID_SPEC),
    (of_az, core.ClientAuthenticationError("a-secret"), Reason.CREDENTIALS_REFUSED),
    (of_az, core.ServiceRequestError(HEADER, error=HEADER), Reason.CREDENTIALS_REFUSED),
    (of_hdfs, HdfsError("no", exception="AccessControlException"), Reason.CREDENTIALS_REFUSED),
    (of_hdfs, HdfsError("Authentication failure. Check your"), Reason.CREDENTIALS_REFUSED),
    (of_hdfs, HdfsError("no", exception="InvalidPathException"), Reason.INVALID_SPEC),
    (of_hdfs, requests.exceptions.TooManyRedirects("a-secret"), Reason.INVALID_SPEC),
]


@pytest.mark.parametrize(("explain", "error", "reason"), FOR_GOOD)
def test_what_no_other_try_would_change_ends_at_once(
    explain: Callable[[Exception], Exception], error: Exception, reason: Reason
) -> None:
    found = explain(error)
    assert isinstance(found, StoreProblem)
    assert (found.reason, found.transient) == (reason, False)
    assert "a-secret" not in found.message


def by_metadata(text: str) -> boto.CredentialRetrievalError:
    """As botocore raises it."""
    try:
        raise boto.MetadataRetrievalError(error_msg=text)
    except boto.MetadataRetrievalError as error:
        try:
            raise boto.CredentialRetrievalError(provider="container-role", error_msg=str(error))
        except boto.CredentialRetrievalError as found:
            return found


def by_deferred(refresh: Callable[[], object]) -> Exception:
    found = DeferredRefreshableCredentials(refresh_using=refresh, method="iam-role")
    try:
        found.get_frozen_credentials()
    except boto.CredentialRetrievalError as error:
        return error
    raise AssertionError("botocore takes no keys for keys")


def by_chain(text: str) -> core.ClientAuthenticationError:
    return core.ClientAuthenticationError(f"DefaultAzureCredential failed. {text} a-secret")


SILENT = [
    (of_s3, by_metadata("timed out, a-secret")),
    (of_s3, by_metadata("Received non 200 response 500 from container metadata: a-secret")),
    (of_s3, by_deferred(dict)),
    (of_gs, auth.RefreshError(auth.TransportError("Compute Engine Metadata server unavailable"))),
    (of_gs, auth.RefreshError(auth.TransportError("Status: 503", SimpleNamespace(status=503)))),
    (of_az, by_chain("ManagedIdentityCredential: no response from the IMDS endpoint.")),
    (of_az, CredentialUnavailableError("no response from the IMDS endpoint. a-secret")),
    (of_az, by_chain("WorkloadIdentityCredential: Failed to establish a new connection")),
]


@pytest.mark.parametrize(("explain", "error"), SILENT)
def test_who_gives_out_credentials_and_does_not_answer_has_refused_nobody(
    explain: Callable[[Exception], Exception], error: Exception
) -> None:
    found = explain(error)
    assert isinstance(found, StoreProblem)
    assert (found.reason, found.transient) == (Reason.STORE_UNREACHABLE, True)
    assert "gives this pod its credentials, does not answer" in found.message
    assert "a-secret" not in found.message


@pytest.mark.parametrize(
    ("explain", "error"),
    [
        (of_s3, by_metadata("Received non 200 response 403 from container metadata: AccessDenied")),
        (of_gs, auth.RefreshError(auth.TransportError("404", SimpleNamespace(status=404)))),
        (of_az, by_chain("WorkloadIdentityCredential: AADSTS700213, timed out")),
    ],
)
def test_and_one_that_answered_has(
    explain: Callable[[Exception], Exception], error: Exception
) -> None:
    found = explain(error)
    assert isinstance(found, StoreProblem)
    assert found.reason is Reason.CREDENTIALS_REFUSED


REFUSED = requests.exceptions.ConnectionError("refused")
TO_PASS = [
    (of_s3, answered("SlowDown", 503), Reason.STORE_UNREACHABLE),
    (of_s3, answered("IDPCommunicationError"), Reason.STORE_UNREACHABLE),
    (of_s3, answered("ExpiredTokenException"), Reason.CREDENTIALS_REFUSED),
    (of_s3, answered("XMinioStorageFull", 507), Reason.DISK_FULL),
    (of_s3, boto.EndpointConnectionError(endpoint_url="https://s3"), Reason.STORE_UNREACHABLE),
    (of_s3, boto.MetadataRetrievalError(error_msg="a-secret"), Reason.STORE_UNREACHABLE),
    (of_s3, boto.BotoCoreError(), Reason.INTERNAL_ERROR),
    (of_gs, api.TooManyRequests("x"), Reason.STORE_UNREACHABLE),
    (of_gs, api.Forbidden("userRateLimitExceeded"), Reason.STORE_UNREACHABLE),
    (of_gs, REFUSED, Reason.STORE_UNREACHABLE),
    (of_gs, auth.TransportError("no answer"), Reason.STORE_UNREACHABLE),
    (of_az, core.ServiceRequestError(REFUSED, error=REFUSED), Reason.STORE_UNREACHABLE),
    (of_az, core.IncompleteReadError("cut"), Reason.STORE_UNREACHABLE),
    (of_hdfs, HdfsError("wait", exception="RetriableException"), Reason.STORE_UNREACHABLE),
    (of_hdfs, HdfsError("full", exception="DSQuotaExceededException"), Reason.DISK_FULL),
    (of_hdfs, REFUSED, Reason.STORE_UNREACHABLE),
]


@pytest.mark.parametrize(("explain", "error", "reason"), TO_PASS)
def test_what_may_pass_is_worth_another_try(
    explain: Callable[[Exception], Exception], error: Exception, reason: Reason
) -> None:
    found = explain(error)
    assert isinstance(found, StoreProblem)
    assert (found.reason, found.transient) == (reason, True)
    assert "a-secret" not in found.message


@pytest.mark.parametrize(
    ("error", "transient"),
    [(TypeError("a-secret"), False), (AttributeError("x"), False), (RuntimeError("x"), True)],
)
def test_an_error_of_the_code_itself_is_not_tried_for_minutes(
    error: Exception, transient: bool
) -> None:
    found = unforeseen(error, "write k")
    assert (found.reason, found.transient) == (Reason.INTERNAL_ERROR, transient)
    assert "a-secret" not in found.message


def test_a_server_by_another_name_or_without_tls_is_told_at_once(
    credentials: S3Server, tmp_path: Path
) -> None:
    where = urlsplit(credentials.endpoint)
    behind = (where.hostname or "", where.port or 0)
    authority, certificate = tls.make_authority(tmp_path, address="127.0.0.2")
    waits: list[object] = []
    with tls.tls_front(certificate=certificate, behind=behind, address="127.0.0.1") as port:
        for endpoint, reason, says in (
            (f"https://127.0.0.1:{port}", Reason.STORE_UNREACHABLE, "certified name"),
            (f"https://{where.netloc}", Reason.INVALID_SPEC, "write http://"),
        ):
            store = open_store(
                credentials.url(),
                endpoint=endpoint,
                ca_file=str(authority),
                patience_s=30,
                transfer_patience_s=30,
                on_wait=waits.append,
            )
            source = tmp_path / "source"
            source.write_bytes(b"x" * (5 << 20))
            for call in (
                lambda s=store: s.head("a"),
                lambda s=store, f=source: s.upload_file("a", f),
            ):
                found = problem(call)
                assert (found.reason, found.transient) == (reason, False)
                assert says in found.message
            store.close()
    assert waits == []
