"""What an error of Google Cloud Storage means and what a person can do about it. No I/O.

Messages are made of the operation, the place and the status: the server's own text may repeat a
token, a URL of an upload is one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import requests
import urllib3
from google.api_core import exceptions as api
from google.auth import exceptions as auth
from google.cloud.storage import exceptions as storage
from rtj_api.reasons import Reason

from rtj_sidecar.stores.answers import BadDigest, ConditionFailed
from rtj_sidecar.stores.base import StoreProblem
from rtj_sidecar.stores.requests_errors import of_request
from rtj_sidecar.stores.service_errors import (
    bucket_missing,
    busy,
    clock,
    no_answer,
    no_identity,
    refused,
)


@dataclass(frozen=True, slots=True)
class Place:
    bucket: str
    endpoint: str | None

    def __str__(self) -> str:
        return f"bucket {self.bucket} at {self.endpoint or 'Google Cloud Storage'}"


@dataclass(frozen=True)
class NotThere(Exception):
    """404 of an object or of its bucket; `problem` where it is the bucket."""

    problem: StoreProblem


_KEYS = (
    "check that the service account's key in checkpoint.store.credentialsSecret "
    "(GOOGLE_APPLICATION_CREDENTIALS) is in force and that its account may list, read, write and "
    "delete there (role Storage Object User)"
)


def bad_key(place: Place) -> StoreProblem:
    return refused(
        f"{place}: GOOGLE_APPLICATION_CREDENTIALS is no JSON key of a service account", _KEYS
    )


def explain(error: Exception, *, operation: str, key: str, place: Place) -> Exception:
    """The exception to raise in place of the library's; any other, as it is."""
    what = f"{operation} {key} in {place}"
    match error:
        case api.GoogleAPICallError():
            return _of_status(int(error.code or 0), str(error), what=what, place=place)
        case storage.InvalidResponse():
            return _of_status(error.response.status_code, str(error), what=what, place=place)
        case storage.DataCorruption():
            return StoreProblem(
                Reason.STORE_UNREACHABLE,
                f"{what}: bytes came damaged; check the network and any proxy",
                transient=True,
            )
        case requests.HTTPError() if error.response is not None:
            return _of_status(error.response.status_code, str(error), what=what, place=place)
        case auth.DefaultCredentialsError():
            return StoreProblem(
                Reason.CREDENTIALS_MISSING,
                f"no credentials for {place}: name a Secret whose key "
                "GOOGLE_APPLICATION_CREDENTIALS holds a service account's JSON key in "
                "checkpoint.store.credentialsSecret, or set up workload identity",
            )
        case auth.RefreshError():
            return _of_refresh(error, what=what, place=place)
        case auth.TransportError() if isinstance(error.args[0] if error.args else None, Exception):
            return of_request(error.args[0], place)
        case requests.RequestException():
            return of_request(error, place)
        # A raw body's errors come as urllib3 raises them.
        case auth.TransportError() | OSError():
            return no_answer(error, place)
        case urllib3.exceptions.HTTPError():
            return no_answer(error, place)
        case json.JSONDecodeError():
            return no_answer(error, place)
    return error


def _of_status(status: int, text: str, *, what: str, place: Place) -> Exception:
    what = f"{what}: {status}"
    match status:
        case 404:
            return NotThere(bucket_missing(place))
        case 412:
            return ConditionFailed(what)
        case 403 if "ratelimitexceeded" in text.lower().replace(" ", ""):
            return busy(what)
        case 401 | 403:
            return refused(what, _KEYS)
        case 408 | 429:
            return busy(what)
        case _ if status >= 500:
            return busy(what)
        case 400 if "CRC32C" in text or "MD5" in text:
            return BadDigest(what)
    return StoreProblem(
        Reason.STORE_UNSUPPORTED, f"{what}; the store refused it: check checkpoint.store"
    )


def _of_refresh(error: auth.RefreshError, *, what: str, place: Place) -> StoreProblem:
    """Google's word for a wrong clock is in the text of an `invalid_grant`."""
    text = str(error)
    if "iat" in text or "reasonable timeframe" in text:
        return clock(what, None)
    if getattr(error, "retryable", False):
        return no_answer(error, place)
    if _is_of_metadata(error):
        return no_identity(error, place, who="the metadata server of the node or cluster")
    return refused(f"{what}: no token", _KEYS)


def _is_of_metadata(error: auth.RefreshError) -> bool:
    """Whether the metadata server did not answer, or only with trouble of its own. What it answers
    with 4xx is an account that is not there: no other try would change that."""
    inner = error.args[0] if error.args else None
    if not isinstance(inner, auth.TransportError):
        return False
    answer = inner.args[1] if len(inner.args) > 1 else None
    return not 400 <= int(getattr(answer, "status", 0)) < 500
