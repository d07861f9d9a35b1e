"""What an error of Azure Blob Storage means and what a person can do about it. No I/O.

Messages are made of the operation, the place and the error's code: the server's own text repeats
the signed request.
"""

from __future__ import annotations

from dataclasses import dataclass

from azure.core import exceptions as core
from azure.identity import CredentialUnavailableError
from rtj_api.reasons import Reason

from rtj_sidecar.stores.answers import Absent, BadDigest, ConditionFailed
from rtj_sidecar.stores.base import SourceChanged, StoreProblem
from rtj_sidecar.stores.requests_errors import of_request
from rtj_sidecar.stores.service_errors import (
    archived,
    bucket_missing,
    busy,
    clock,
    expired,
    no_answer,
    no_identity,
    refused,
    skew_of,
)


@dataclass(frozen=True, slots=True)
class Place:
    container: str
    endpoint: str | None

    def __str__(self) -> str:
        return f"container {self.container} at {self.endpoint or 'Azure Blob Storage'}"


_KEYS = (
    "check AZURE_STORAGE_ACCOUNT with AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN in "
    "checkpoint.store.credentialsSecret, and that they may list, read, write and delete there (for "
    "an identity: role Storage Blob Data Contributor)"
)
_DIGEST = {"Md5Mismatch", "InvalidMd5", "Crc64Mismatch"}


def no_account(place: Place) -> StoreProblem:
    return StoreProblem(
        Reason.CREDENTIALS_MISSING,
        f"{place}: no storage account is named: put AZURE_STORAGE_ACCOUNT into the Secret that "
        "checkpoint.store.credentialsSecret names, or set checkpoint.store.endpoint to "
        "https://<account>.blob.core.windows.net",
    )


def no_credentials(place: Place) -> StoreProblem:
    return StoreProblem(Reason.CREDENTIALS_MISSING, f"no usable credentials for {place}: {_KEYS}")


def explain(error: Exception, *, operation: str, key: str, place: Place) -> Exception:
    """The exception to raise in place of the library's; any other, as it is."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, SourceChanged):
            return cause
        cause = cause.__cause__ or cause.__context__
    what = f"{operation} {key} in {place}"
    match error:
        case core.HttpResponseError() if error.status_code is not None:
            return _of_answer(error, what=what, key=key, place=place)
        case core.ClientAuthenticationError() if _is_silence(str(error.message)):
            who = "the metadata server of the node or the identity service"
            return no_identity(error, place, who=who)
        case CredentialUnavailableError():
            return no_credentials(place)
        case core.ClientAuthenticationError():
            return refused(f"{what}: no token", _KEYS)
        case core.AzureError():
            inner = error.inner_exception
            return of_request(inner if isinstance(inner, Exception) else error, place)
        case OSError():
            return no_answer(error, place)
    return error


# In the text of DefaultAzureCredential, which tells of all that it tried in one error.
_SILENCE = (
    "no response from the imds endpoint",
    "failed to establish a new connection",
    "connection aborted",
    "connection reset",
    "timed out",
)


def _is_silence(text: str) -> bool:
    """Whether whoever gives out tokens did not answer. An error code is Entra's word."""
    told = text.lower()
    return "aadsts" not in told and any(word in told for word in _SILENCE)


def _of_answer(error: core.HttpResponseError, *, what: str, key: str, place: Place) -> Exception:
    status = int(error.status_code or 0)
    code = getattr(error, "error_code", None) or status
    code = str(getattr(code, "value", code))
    text = str(error.message or "")
    what = f"{what}: {code}"
    if code == "ContainerNotFound":
        return bucket_missing(place)
    if code == "ContainerBeingDeleted":
        return busy(what)
    if code in ("BlobArchived", "BlobBeingRehydrated"):
        return archived(what)
    if status == 404:
        return Absent(key)
    if code == "BlobAlreadyExists" or status == 412:
        return ConditionFailed(key)
    if code in _DIGEST:
        return BadDigest(what)
    if status in (401, 403):
        # The code alone does not tell these from a wrong key.
        if "date header" in text.lower():
            return clock(what, skew_of(error.response.headers.get("Date")))
        if "in the specified time frame" in text or "expir" in text.lower():
            return expired(what)
        return refused(what, _KEYS)
    if status in (408, 429) or status >= 500:
        return busy(what)
    return StoreProblem(
        Reason.STORE_UNSUPPORTED, f"{what}; the store refused it: check checkpoint.store"
    )
