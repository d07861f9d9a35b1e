"""What an error of WebHDFS means and what a person can do about it. No I/O.

Messages are made of the operation, the place and the exception's class: a URL may hold a token.
"""

from __future__ import annotations

from dataclasses import dataclass

import requests
import urllib3
from hdfs import HdfsError
from rtj_api.reasons import Reason

from rtj_sidecar.stores.base import SourceChanged, StoreProblem
from rtj_sidecar.stores.requests_errors import of_request
from rtj_sidecar.stores.service_errors import busy, expired, no_answer, refused


@dataclass(frozen=True, slots=True)
class Place:
    host: str
    endpoint: str

    def __str__(self) -> str:
        return f"HDFS of {self.host} at {self.endpoint}"


_KEYS = (
    "check HADOOP_USER_NAME, or HADOOP_DELEGATION_TOKEN where the cluster uses Kerberos, in "
    "checkpoint.store.credentialsSecret, and that this user may write in the store's directory"
)
_REFUSED = {
    "AccessControlException",
    "AuthenticationException",
    "AuthorizationException",
    "SecurityException",
}
_QUOTA = {"DSQuotaExceededException", "NSQuotaExceededException", "QuotaExceededException"}
_FOR_GOOD = {"IllegalArgumentException", "InvalidPathException", "ParentNotDirectoryException"}


def is_absent(error: HdfsError) -> bool:
    return error.exception == "FileNotFoundException"


def explain(error: Exception, *, operation: str, key: str, place: Place) -> Exception:
    """The exception to raise in place of the library's; any other, as it is."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, SourceChanged):
            return cause
        cause = cause.__cause__ or cause.__context__
    match error:
        case HdfsError():
            return _of_answer(error, what=f"{operation} {key} in {place}")
        case requests.RequestException():
            return of_request(error, place)
        case OSError() | urllib3.exceptions.HTTPError():
            return no_answer(error, place)
        case KeyError() | ValueError():  # an answer that is not WebHDFS's
            return no_answer(error, place)
    return error


def _of_answer(error: HdfsError, *, what: str) -> StoreProblem:
    name, text = error.exception, str(error)
    if name is None and "Authentication failure" in text:
        return refused(f"{what}: 401", _KEYS)
    what = f"{what}: {name or 'an answer without a reason'}"
    if name == "InvalidToken" or "InvalidToken" in text:
        return expired(what) if "expired" in text else refused(what, _KEYS)
    if name in _REFUSED:
        return refused(what, _KEYS)
    if name in _QUOTA:
        return StoreProblem(
            Reason.DISK_FULL,
            f"{what}; the directory's quota is used up: raise it, or free space there",
            transient=True,
        )
    if name in _FOR_GOOD:
        return StoreProblem(Reason.INVALID_SPEC, f"{what}; check checkpoint.store.url")
    if name == "UnsupportedOperationException":
        return StoreProblem(
            Reason.STORE_UNSUPPORTED, f"{what}; this server lacks it: use WebHDFS of Hadoop 3"
        )
    if "safe mode" in text.lower():
        return StoreProblem(
            Reason.STORE_UNREACHABLE,
            f"{what}; the name node is in safe mode and takes no writes: look at its health, "
            "`hdfs dfsadmin -safemode get`",
            transient=True,
        )
    return busy(what)
