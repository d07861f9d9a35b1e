"""What an error of the HTTP client `requests` means: the library under three of the drivers.

Its texts repeat URLs and headers, which may hold a secret: they are looked at and never told.
"""

from __future__ import annotations

import requests
from rtj_api.reasons import Reason

from rtj_sidecar.stores.base import StoreProblem
from rtj_sidecar.stores.service_errors import line_break, no_answer, of_tls

_NO_ADDRESS = (
    requests.exceptions.InvalidURL,
    requests.exceptions.InvalidProxyURL,
    requests.exceptions.InvalidSchema,
    requests.exceptions.MissingSchema,
    requests.exceptions.TooManyRedirects,
)


def of_request(error: Exception, place: object) -> StoreProblem:
    """Trouble that may pass, but for what no other try would change."""
    if isinstance(error, requests.exceptions.SSLError):
        return of_tls(error, place)
    if isinstance(error, requests.exceptions.InvalidHeader):
        return line_break(place)
    if isinstance(error, _NO_ADDRESS):
        return StoreProblem(
            Reason.INVALID_SPEC,
            f"{place} cannot be asked ({type(error).__name__}): check checkpoint.store.endpoint, "
            "and HTTPS_PROXY in spec.sidecar.env",
        )
    return no_answer(error, place)
