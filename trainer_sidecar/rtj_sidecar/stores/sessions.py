"""What sessions of `requests` need to be told, wherever a client library uses one."""

from __future__ import annotations

import functools

import requests


def trust(session: requests.Session, ca_file: str) -> None:
    """Only certificates that these authorities signed.

    Told with each request: with `session.verify` a REQUESTS_CA_BUNDLE of the environment wins.
    """
    session.request = functools.partial(  # type: ignore[method-assign]
        session.request, verify=ca_file
    )
