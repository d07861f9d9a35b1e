"""Credentials from a mounted Secret, read again for every request.

A container's environment never changes, a mounted Secret does: a key that was wrong or has been
rotated is taken up without a restart. Must never log or tell a credential.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
from botocore.credentials import DeferredRefreshableCredentials
from botocore.exceptions import NoCredentialsError
from botocore.session import Session, get_session

_ID, _SECRET, _TOKEN = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"
# botocore asks again, without blocking, for what expires within 15 minutes, and insists on it
# within 10: in between, every request reads the two small files.
_LASTS = timedelta(minutes=12)


def session_of(directory: Path | None) -> boto3.session.Session:
    """A session that reads `directory`'s files AWS_ACCESS_KEY_ID and so on; where they are not
    there, and where no directory is given, the credentials that boto3 finds by itself: looked for
    with every request until there are any, for a client that is made without stays without."""
    core = get_session()
    found = DeferredRefreshableCredentials(
        refresh_using=lambda: _read(directory, core), method="rtj-secret"
    )
    session = get_session()
    session._credentials = found  # botocore has no public way to give it a provider of one's own
    return boto3.session.Session(botocore_session=session)


def _read(directory: Path | None, otherwise: Session) -> dict[str, str | None]:
    key, secret, token = (
        _text(directory / name) if directory is not None else None
        for name in (_ID, _SECRET, _TOKEN)
    )
    if key is None or secret is None:
        default = otherwise.get_credentials()
        if default is None:
            raise NoCredentialsError()
        frozen = default.get_frozen_credentials()
        key, secret, token = frozen.access_key, frozen.secret_key, frozen.token
    expires = (datetime.now(UTC) + _LASTS).isoformat()
    return {"access_key": key, "secret_key": secret, "token": token, "expiry_time": expires}


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8").strip() or None
    except OSError:
        return None
