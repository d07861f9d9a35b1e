"""Azure Blob Storage by azure-storage-blob: `az://container/prefix`.

Records are written by If-None-Match and If-Match; a large file is blocks, each with its MD5, that
one commit makes visible. Must never let the library try again by itself, see `service`.
"""

from __future__ import annotations

import base64
import contextlib
import math
import time
import uuid
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from azure.core import MatchConditions
from azure.core import exceptions as core
from azure.identity import DefaultAzureCredential
from azure.storage.blob import BlobBlock, BlobClient, ContainerClient
from rtj_api.reasons import Reason
from rtj_api.stores import keys_of

from rtj_sidecar.stores.answers import BadDigest, NoSuchUpload
from rtj_sidecar.stores.azure_errors import Place, explain, no_account, no_credentials
from rtj_sidecar.stores.base import Condition, Head, IfAbsent, IfMatch, Listed, StoreProblem
from rtj_sidecar.stores.secrets import Fresh, keep_requests_out_of_logs, values_of
from rtj_sidecar.stores.service import Piece
from rtj_sidecar.stores.service_errors import expired

_CONNECT_TIMEOUT_S, _READ_TIMEOUT_S = 3, 60
_BLOCK = 8 << 20
_MOST_BLOCKS = 49_000  # of 50,000
_MIB = 1 << 20


class Azure:
    """A service.Service in one container."""

    parallel = True
    # The most of which the service tells the MD5.
    read_size = 4 << 20

    def __init__(
        self,
        container: str,
        *,
        endpoint: str | None,
        ca_file: str | None,
        credentials_dir: Path | None,
    ) -> None:
        keep_requests_out_of_logs("azure.core.pipeline.policies.http_logging_policy")
        self._container, self._endpoint, self._ca_file = container, endpoint, ca_file
        self._place = Place(container=container, endpoint=endpoint)
        self._credentials_dir = credentials_dir
        self._fresh = Fresh(self._make, directory=credentials_dir, names=keys_of("az"))

    @property
    def url(self) -> str:
        return f"az://{self._container}"

    def piece_size(self, size: int) -> int:
        return max(_BLOCK, math.ceil(size / _MOST_BLOCKS / _MIB) * _MIB)

    held = piece_size

    def put(self, key: str, data: bytes, condition: Condition) -> str:
        conditions: dict[str, Any] = {"overwrite": True}
        match condition:
            case IfAbsent():
                conditions = {"overwrite": False}
            case IfMatch(etag):
                conditions |= {"etag": etag, "match_condition": MatchConditions.IfNotModified}
        answer = self._blob(key).upload_blob(
            data, length=len(data), validate_content=True, max_concurrency=1, **conditions
        )
        return str(answer["etag"])

    def get(self, key: str) -> tuple[bytes, str]:
        came = self._blob(key).download_blob(validate_content=True, max_concurrency=1)
        return came.readall(), str(came.properties.etag)

    def page(self, prefix: str, token: str | None) -> tuple[list[Listed], str | None]:
        pages = (
            self._fresh.get()
            .list_blobs(name_starts_with=prefix or None, include=["metadata"])
            .by_page(continuation_token=token)
        )
        found = [
            Listed(str(blob.name), int(blob.size))
            for blob in next(pages, [])
            # A directory, where the account has a hierarchical namespace.
            if (blob.metadata or {}).get("hdi_isfolder") != "true"
        ]
        return found, pages.continuation_token or None

    def head(self, key: str) -> Head:
        found = self._blob(key).get_blob_properties()
        tier = found.blob_tier
        return Head(int(found.size), str(found.etag), storage_class=tier and str(tier))

    def delete(self, key: str) -> None:
        self._blob(key).delete_blob(delete_snapshots="include")

    def read(self, key: str, start: int, end: int) -> bytes:
        try:
            came = self._blob(key).download_blob(
                offset=start, length=end - start, validate_content=True, max_concurrency=1
            )
            data: bytes = came.readall()
        except core.HttpResponseError as error:
            if error.status_code == 416:
                return b""
            raise
        return data

    def begin(self, key: str, size: int) -> _Session:
        return _Session(self._blob(key), key=key, size=size)

    def explain(self, error: Exception, *, operation: str, key: str) -> Exception:
        meant = explain(error, operation=operation, key=key, place=self._place)
        if isinstance(meant, StoreProblem) and meant.reason is Reason.CREDENTIALS_REFUSED:
            sas = values_of(self._credentials_dir, keys_of("az")).get("AZURE_STORAGE_SAS_TOKEN")
            if sas is not None and _has_ended(sas):
                return expired(f"{operation} {key} in {self._place}")
        return meant

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._fresh.get().close()

    def _blob(self, key: str) -> BlobClient:
        return self._fresh.get().get_blob_client(key)

    def _make(self, values: Mapping[str, str]) -> ContainerClient:
        settings: dict[str, Any] = {
            "retry_total": 0,
            "connection_timeout": _CONNECT_TIMEOUT_S,
            "read_timeout": _READ_TIMEOUT_S,
            "max_single_get_size": self.read_size,
            "max_chunk_get_size": self.read_size,
            "max_single_put_size": 64 << 20,
            "connection_verify": self._ca_file or True,
        }
        if text := values.get("AZURE_STORAGE_CONNECTION_STRING"):
            try:
                return ContainerClient.from_connection_string(text, self._container, **settings)
            except ValueError:
                raise no_credentials(self._place) from None  # what it says may repeat the key
        account = values.get("AZURE_STORAGE_ACCOUNT")
        place = self._endpoint or (account and f"https://{account}.blob.core.windows.net")
        if not place:
            raise no_account(self._place)
        credential: Any = values.get("AZURE_STORAGE_SAS_TOKEN")
        if key := values.get("AZURE_STORAGE_KEY"):
            if not _is_base64(key):
                raise no_credentials(self._place)
            name = account or place.rstrip("/").rpartition("/")[2].partition(".")[0]
            credential = {"account_name": name, "account_key": key}
        if credential is None:
            if place.startswith("http://"):  # a token is never sent in the clear
                raise no_credentials(self._place)
            credential = DefaultAzureCredential(exclude_interactive_browser_credential=True)
        return ContainerClient(place, self._container, credential=credential, **settings)


class _Session:
    """Blocks, staged in any order and visible with the commit; left over, they last a week."""

    def __init__(self, blob: BlobClient, *, key: str, size: int) -> None:
        self._blob, self._key, self._size = blob, key, size
        self._id = uuid.uuid4().hex[:16]

    def hashed(self, block: memoryview) -> None:
        return None

    def digest(self) -> str:
        return ""

    def send(self, piece: Piece) -> None:
        self._blob.stage_block(
            self._name(piece), piece.content(), length=len(piece), validate_content=True
        )

    def finish(self, pieces: list[Piece]) -> str:
        try:
            answer = self._blob.commit_block_list([BlobBlock(self._name(p)) for p in pieces])
        except core.HttpResponseError as error:
            if error.error_code in ("InvalidBlockList", "InvalidBlobOrBlock"):
                raise NoSuchUpload(self._key) from error
            raise
        found = self._blob.get_blob_properties()
        if (found.etag, found.size) != (answer["etag"], self._size):
            raise BadDigest(self._key)
        return str(found.etag)

    def again(self) -> bool:
        return True

    def abort(self) -> None:
        return None

    def _name(self, piece: Piece) -> str:
        """All of one length, as the service demands."""
        return base64.b64encode(f"{self._id}-{piece.number:08}".encode()).decode()


def _has_ended(sas: str) -> bool:
    """Whether a shared access signature states an end that is over by this node's clock."""
    try:
        end = datetime.fromisoformat(parse_qs(sas.lstrip("?"))["se"][0])
        return end.timestamp() < time.time()
    except (KeyError, ValueError):
        return False


def _is_base64(key: str) -> bool:
    try:
        return bool(base64.b64decode(key, validate=True))
    except ValueError:
        return False
