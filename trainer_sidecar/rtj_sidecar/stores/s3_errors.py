"""What an error of S3 means and what a person can do about it: one table, no I/O.

Messages are made of the operation, the place and the error's code. The server's own text stays out:
it may repeat a key ID, and a signature's error repeats the signed request.
"""

from __future__ import annotations

from dataclasses import dataclass

from botocore import exceptions as boto
from botocore.parsers import ResponseParserError
from rtj_api.reasons import Reason

from rtj_sidecar.stores.answers import Absent, BadDigest, ConditionFailed, NoSuchUpload, Refused
from rtj_sidecar.stores.base import SourceChanged, StoreProblem
from rtj_sidecar.stores.service_errors import (
    bucket_missing,
    clock,
    line_break,
    no_answer,
    no_identity,
    of_tls,
    skew_of,
    unforeseen,
)


@dataclass(frozen=True, slots=True)
class Place:
    bucket: str
    endpoint: str | None
    region: str | None

    def __str__(self) -> str:
        where = self.endpoint or f"AWS region {self.region or 'unset'}"
        return f"bucket {self.bucket} at {where}"


_ABSENT = {"NoSuchKey", "404", "NotFound"}
_REFUSED = {
    "403",
    "AccessDenied",
    "AccountProblem",
    "AllAccessDisabled",
    "Forbidden",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidIdentityToken",
    "InvalidSecurity",
    "InvalidToken",
    "SignatureDoesNotMatch",
    "Unauthorized",
    "UnauthorizedAccess",
}
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
_FULL = {"InsufficientStorage", "QuotaExceeded", "XMinioStorageFull"}
_BUSY = {
    "ConditionalRequestConflict",
    "IDPCommunicationError",
    "InternalError",
    "OperationAborted",
    "RequestTimeout",
    "ServiceUnavailable",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "TooManyRequests",
}
_REGION = {"AuthorizationHeaderMalformed", "PermanentRedirect", "301", "307", "308"}
_DIGEST = {"BadDigest", "InvalidDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch"}


# What servers say of a checksum that they do not know, or miss one that they want.
_NO_CHECKSUM = {
    "InvalidArgument",
    "InvalidRequest",
    "MissingContentMD5",
    "NotImplemented",
    "XNotImplemented",
}
_OF_SETTINGS = (
    boto.ConfigNotFound,
    boto.ConfigParseError,
    boto.InvalidConfigError,
    boto.InvalidProxiesConfigError,
    boto.InvalidRegionError,
    boto.ProfileNotFound,
)
_ON_THE_WAY = (
    boto.ConnectionError,
    boto.HTTPClientError,
    boto.IncompleteReadError,
    boto.MetadataRetrievalError,
    ResponseParserError,
)
_WITH_CHECKSUM = ("put_object", "upload_part", "create_multipart_upload")


def explain(error: Exception, *, operation: str, key: str, place: Place) -> Exception:
    """The exception to raise in place of botocore's."""
    # What our own body raised while it was sent comes wrapped as a failure of the connection.
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, SourceChanged):
            return cause
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, boto.ClientError):
        return _of_answer(error, operation=operation, key=key, place=place)
    return _of_transport(error, place=place)


def _of_answer(error: boto.ClientError, *, operation: str, key: str, place: Place) -> Exception:
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    what = f"{operation} {key} in {place}: {code or status}"
    if code == "NoSuchBucket":
        return bucket_missing(place)
    if code == "NoSuchUpload":
        return NoSuchUpload(what)
    if code in _ABSENT:
        return Absent(key)
    # Some MinIO answered a write that found its key there as a reader's cache is answered.
    if code == "PreconditionFailed" or status in (304, 412):
        return ConditionFailed(key)
    if code in _DIGEST:
        return BadDigest(what)
    if code in _EXPIRED:
        return StoreProblem(
            Reason.CREDENTIALS_REFUSED,
            f"{what}; the token has expired: renew it (workload identity does so by itself)",
            transient=True,
        )
    if code == "InvalidObjectState":
        return StoreProblem(
            Reason.CHECKPOINT_ARCHIVED,
            f"{what}; the object is archived: ask the store to restore it "
            "(`rtj checkpoints restore`), and try again when it has",
        )
    if code == "RestoreAlreadyInProgress":
        return StoreProblem(
            Reason.CHECKPOINT_ARCHIVED, f"{what}; it is being restored already", transient=True
        )
    if code == "RequestTimeTooSkewed":
        headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        return clock(what, skew_of(headers.get("date")))
    if code in _REFUSED or status in (401, 403):
        return StoreProblem(
            Reason.CREDENTIALS_REFUSED,
            f"{what}; check the keys in checkpoint.store.credentialsSecret and that they may "
            "list, read, write and delete there",
        )
    if operation in _WITH_CHECKSUM and (code in _NO_CHECKSUM or status == 501):
        return Refused(what)
    if code in _REGION or status in (301, 307, 308):
        return StoreProblem(
            Reason.INVALID_SPEC, f"{what}; set checkpoint.store.region to the bucket's region"
        )
    if code == "NotImplemented" or status == 501:
        return StoreProblem(
            Reason.STORE_UNSUPPORTED, f"{what}; this server lacks it: use a newer version of it"
        )
    if code in _FULL or status == 507:
        return StoreProblem(
            Reason.DISK_FULL,
            f"{what}; the store is full: free space there, or raise the bucket's quota",
            transient=True,
        )
    if code in _BUSY or status >= 500 or status == 429:
        return StoreProblem(
            Reason.STORE_UNREACHABLE,
            f"{what}; the store is busy or failing, tried again by itself",
            transient=True,
        )
    return StoreProblem(
        Reason.STORE_UNSUPPORTED, f"{what}; the store refused it: check checkpoint.store"
    )


def _of_transport(error: Exception, *, place: Place) -> Exception:
    # http.client's words, by themselves or in botocore's HTTPClientError.
    if "Invalid header value" in str(error):
        return line_break(place)
    if isinstance(error, boto.NoCredentialsError | boto.PartialCredentialsError):
        return StoreProblem(
            Reason.CREDENTIALS_MISSING,
            f"no credentials for {place}: name a Secret with AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY in checkpoint.store.credentialsSecret. Where the node's role is "
            "meant: its metadata service did not answer in time, or lets no pod in (hop limit 2)",
        )
    if isinstance(error, boto.CredentialRetrievalError) and _is_silence(error):
        return no_identity(error, place, who="the metadata service of the node or of EKS")
    if isinstance(error, boto.CredentialRetrievalError | boto.TokenRetrievalError):
        return StoreProblem(
            Reason.CREDENTIALS_REFUSED,
            f"credentials for {place} could not be fetched ({type(error).__name__}): check the "
            "pod's workload identity",
            transient=True,
        )
    if isinstance(error, boto.SSLError):
        return of_tls(error, place)
    if isinstance(error, _OF_SETTINGS):
        return StoreProblem(
            Reason.INVALID_SPEC,
            f"{place} was not asked: the AWS settings of the sidecar do not hold together "
            f"({type(error).__name__}): check AWS_PROFILE, AWS_CONFIG_FILE and their like in "
            "spec.sidecar.env and envFrom, and the service account of the pod",
        )
    if isinstance(error, boto.NoRegionError):
        return StoreProblem(Reason.INVALID_SPEC, f"{place}: set checkpoint.store.region")
    if isinstance(error, boto.ParamValidationError | ValueError):
        return StoreProblem(
            Reason.INVALID_SPEC,
            f"{place}: not acceptable to S3 ({type(error).__name__}): check checkpoint.store.url "
            "and endpoint",
        )
    if isinstance(error, _ON_THE_WAY):
        return no_answer(error, place)
    return unforeseen(error, str(place))


def _is_silence(error: boto.CredentialRetrievalError) -> bool:
    """Whether whoever gives out keys did not answer. A role that was refused is told with 4xx; the
    node's metadata service says nothing at all then, and botocore misses what it wanted."""
    text = str(error)
    if isinstance(error.__context__, boto.MetadataRetrievalError):
        return "non 200 response 4" not in text
    return "response did not contain: access_key" in text
