"""Google Cloud Storage by google-cloud-storage: `gs://bucket/prefix`.

Writes are conditional by generation, which is what an ETag is here; every upload carries its CRC32C
or is compared with the server's. A large file is one resumable upload, whose URL is a secret. Must
never let the library try again by itself, see `service`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google.auth
from awscrt import checksums
from google.api_core.exceptions import Forbidden, RequestRangeNotSatisfiable
from google.auth import credentials as google_credentials
from google.auth import exceptions as auth
from google.auth.transport.requests import AuthorizedSession
from google.cloud.storage import Client
from google.oauth2 import service_account
from requests.adapters import HTTPAdapter
from rtj_api.stores import keys_of

from rtj_sidecar.stores.answers import Absent, BadDigest, ConditionFailed
from rtj_sidecar.stores.base import Condition, Head, IfAbsent, IfMatch, Listed, StoreProblem
from rtj_sidecar.stores.gcs_errors import NotThere, Place, bad_key, explain
from rtj_sidecar.stores.gcs_upload import TIMEOUT, Session, text_of
from rtj_sidecar.stores.secrets import Fresh, keep_requests_out_of_logs
from rtj_sidecar.stores.sessions import trust

CREDENTIALS = "GOOGLE_APPLICATION_CREDENTIALS"
_SCOPES = ("https://www.googleapis.com/auth/devstorage.read_write",)


@dataclass(frozen=True, slots=True)
class _Made:
    client: Client
    http: AuthorizedSession


class Gcs:
    """A service.Service in one bucket. `prefix`: below which it is known to have rights."""

    parallel = False
    read_size = 8 << 20

    def __init__(
        self,
        bucket: str,
        *,
        endpoint: str | None,
        ca_file: str | None,
        credentials_dir: Path | None,
        prefix: str = "",
    ) -> None:
        keep_requests_out_of_logs("google.auth.transport.requests")
        self._bucket, self._endpoint, self._ca_file = bucket, endpoint, ca_file
        self._prefix = f"{prefix}/" if prefix else ""
        self._place = Place(bucket=bucket, endpoint=endpoint)
        self._fresh = Fresh(self._make, directory=credentials_dir, names=keys_of("gs"))
        self._proved = False

    @property
    def url(self) -> str:
        return f"gs://{self._bucket}"

    def piece_size(self, size: int) -> int:
        return 8 << 20

    held = piece_size

    def put(self, key: str, data: bytes, condition: Condition) -> str:
        blob = self._blob(key)
        matches: dict[str, int] = {}
        match condition:
            case IfAbsent():
                matches["if_generation_match"] = 0
            case IfMatch(etag):
                matches["if_generation_match"] = _generation(etag)
        blob.upload_from_string(
            data,
            content_type="application/octet-stream",
            checksum="crc32c",
            timeout=TIMEOUT,
            retry=None,
            **matches,
        )
        if blob.crc32c != text_of(checksums.crc32c(data)):
            raise BadDigest(key)
        return str(blob.generation)

    def get(self, key: str) -> tuple[bytes, str]:
        blob = self._blob(key)
        data = blob.download_as_bytes(
            raw_download=True, checksum="crc32c", timeout=TIMEOUT, retry=None
        )
        return data, str(blob.generation)

    def page(self, prefix: str, token: str | None) -> tuple[list[Listed], str | None]:
        return self._page(prefix, token)

    def _page(
        self, prefix: str, token: str | None, *, at_most: int | None = None
    ) -> tuple[list[Listed], str | None]:
        pages = self._fresh.get().client.list_blobs(
            self._bucket,
            prefix=prefix or None,
            page_token=token,
            page_size=at_most,
            fields="items(name,size),nextPageToken",
            timeout=TIMEOUT,
            retry=None,
        )
        found = [Listed(blob.name, int(blob.size)) for blob in next(pages.pages, ())]
        return found, pages.next_page_token

    def head(self, key: str) -> Head:
        blob = self._blob(key)
        blob.reload(timeout=TIMEOUT, retry=None)
        return Head(int(blob.size), str(blob.generation), storage_class=blob.storage_class)

    def copy(self, source: str, target: str, etag: str) -> Head:
        generation = _generation(etag)
        bucket = self._fresh.get().client.bucket(self._bucket)
        one, other = bucket.blob(source), bucket.blob(target)
        one.reload(timeout=TIMEOUT, retry=None)
        if one.generation != generation:
            raise ConditionFailed(source)
        token: str | None = None
        while True:
            token, _, _ = other.rewrite(
                one,
                token=token,
                if_source_generation_match=generation,
                timeout=TIMEOUT,
                retry=None,
            )
            if token is None:
                break
        other.reload(timeout=TIMEOUT, retry=None)
        if one.crc32c is None or (one.crc32c, one.size) != (other.crc32c, other.size):
            raise BadDigest(target)
        return Head(int(other.size), str(other.generation), storage_class=other.storage_class)

    def delete(self, key: str) -> None:
        self._blob(key).delete(timeout=TIMEOUT, retry=None)

    def read(self, key: str, start: int, end: int) -> bytes:
        try:
            data: bytes = self._blob(key).download_as_bytes(
                start=start,
                end=end - 1,
                raw_download=True,
                checksum=None,
                timeout=TIMEOUT,
                retry=None,
            )
        except RequestRangeNotSatisfiable:
            return b""
        return data

    def begin(self, key: str, size: int) -> Session:
        made = self._fresh.get()
        place = (
            made.client.bucket(self._bucket)
            .blob(key)
            .create_resumable_upload_session(
                content_type="application/octet-stream",
                size=size,
                timeout=TIMEOUT,
                checksum=None,
                retry=None,
            )
        )
        return Session(self._blob(key), made.http, place, key=key, size=size)

    def explain(self, error: Exception, *, operation: str, key: str) -> Exception:
        meant = explain(error, operation=operation, key=key, place=self._place)
        if isinstance(meant, NotThere):
            return self._what_is_missing(key, meant.problem)
        return meant

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._fresh.get().http.close()

    def _what_is_missing(self, key: str, no_bucket: StoreProblem) -> Exception:
        """A 404 does not say whether the object is missing or the bucket: asked once.

        Where listing is forbidden the bucket is there: of a missing one the service says 404.
        """
        if not self._proved:
            try:
                self._page(self._prefix, None, at_most=1)
            except Exception as error:
                meant = explain(error, operation="list", key=self._prefix, place=self._place)
                if isinstance(meant, NotThere):
                    return no_bucket
                if not isinstance(error, Forbidden):
                    return meant
            self._proved = True
        return Absent(key)

    def _blob(self, key: str) -> Any:
        return self._fresh.get().client.bucket(self._bucket).blob(key)

    def _make(self, values: Mapping[str, str]) -> _Made:
        credentials = self._credentials(values.get(CREDENTIALS))
        http = AuthorizedSession(credentials)
        # The library would ask three times, see the module's docstring.
        http.mount("https://", HTTPAdapter(pool_maxsize=16))
        http.mount("http://", HTTPAdapter(pool_maxsize=16))
        if self._ca_file:
            trust(http, self._ca_file)
        options = {"api_endpoint": self._endpoint.rstrip("/")} if self._endpoint else None
        client = Client(project=None, credentials=credentials, _http=http, client_options=options)
        # It would ask for the bucket's metadata in a thread of its own, again and again, with a
        # right that nobody needs here, and log what came of it.
        client._bucket_metadata_cache = None
        return _Made(client, http)

    def _credentials(self, value: str | None) -> google_credentials.Credentials:
        if value is not None and value.lstrip().startswith("{"):
            try:
                info = json.loads(value)
                if info.get("type") == "service_account":
                    return service_account.Credentials.from_service_account_info(
                        info, scopes=_SCOPES
                    )
                return google.auth.load_credentials_from_dict(info, scopes=_SCOPES)[0]
            except (ValueError, auth.GoogleAuthError):
                raise bad_key(self._place) from None  # what it says may repeat the key
        try:
            return google.auth.default(scopes=_SCOPES)[0]
        except auth.DefaultCredentialsError:
            # A server of one's own, in the cluster, that asks for none.
            if self._endpoint and self._endpoint.startswith("http://"):
                return google_credentials.AnonymousCredentials()
            raise


def _generation(etag: str) -> int:
    try:
        return int(etag)
    except ValueError as error:
        raise ConditionFailed(etag) from error
