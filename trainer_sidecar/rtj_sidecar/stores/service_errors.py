"""The sentences that more than one service needs: what is wrong and what a person can do."""

from __future__ import annotations

import re
import time
import traceback
from email.utils import parsedate_to_datetime
from pathlib import Path

from rtj_api.reasons import Reason

from rtj_sidecar.stores.base import StoreProblem


def bucket_missing(place: object) -> StoreProblem:
    return StoreProblem(
        Reason.BUCKET_MISSING, f"{place} does not exist: create it, or correct checkpoint.store.url"
    )


def refused(what: str, remedy: str, *, transient: bool = False) -> StoreProblem:
    return StoreProblem(Reason.CREDENTIALS_REFUSED, f"{what}; {remedy}", transient=transient)


def no_identity(error: Exception, place: object, *, who: str) -> StoreProblem:
    """No token or key could be fetched, because `who` gives them out did not answer: nobody has
    refused anything."""
    return StoreProblem(
        Reason.STORE_UNREACHABLE,
        f"{place} was not asked: {who}, which gives this pod its credentials, does not answer "
        f"({type(error).__name__}); tried again by itself. If it stays: let the pod reach it "
        "(NetworkPolicy, proxy, hop limit of the node's metadata service), or name a Secret in "
        "checkpoint.store.credentialsSecret",
        transient=True,
    )


def expired(what: str) -> StoreProblem:
    return refused(
        what,
        "the token has expired: renew it in checkpoint.store.credentialsSecret (running pods take "
        "it up; workload identity renews by itself)",
        transient=True,
    )


def busy(what: str) -> StoreProblem:
    return StoreProblem(
        Reason.STORE_UNREACHABLE,
        f"{what}; the store is busy or failing, tried again by itself",
        transient=True,
    )


def skew_of(date: str | None) -> float | None:
    """Seconds by which this clock is ahead of an answer's Date; None if that says nothing."""
    try:
        return time.time() - parsedate_to_datetime(date or "").timestamp()
    except ValueError:
        return None


def clock(what: str, ahead_s: float | None) -> StoreProblem:
    """`ahead_s`: how far this node's clock is before the store's, where that is known."""
    by = ""
    if ahead_s is not None:
        by = f" (it is {abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} the store's)"
    return StoreProblem(
        Reason.STORE_UNREACHABLE, f"{what}; set this node's clock{by}, by NTP", transient=True
    )


# What OpenSSL says of a certificate that it does not accept, whoever signed it, and of an answer
# that is no TLS. A connection that was cut, or a server that has too much to do, is neither.
_NO_TRUST = re.compile(
    "certificate.verify.failed|(hostname|ip address) mismatch|hostname .* doesn't match"
    "|no appropriate subjectaltname"
)
_NO_TLS = ("wrong version number", "wrong_version_number", "http request", "unknown protocol")


def of_tls(error: Exception, place: object) -> StoreProblem:
    """By the text of the library's error, which is not told."""
    text = str(error).lower()
    if _NO_TRUST.search(text):
        return no_trust(place)
    if any(word in text for word in _NO_TLS):
        return StoreProblem(
            Reason.INVALID_SPEC,
            f"{place} does not speak TLS there: write http:// in checkpoint.store.endpoint, or the "
            "port of its TLS",
        )
    return no_answer(error, place)


def no_trust(place: object) -> StoreProblem:
    return StoreProblem(
        Reason.STORE_UNREACHABLE,
        f"{place}: the TLS certificate was not accepted: set checkpoint.store.caBundle, or use the "
        "endpoint's certified name",
    )


def line_break(place: object) -> StoreProblem:
    return StoreProblem(
        Reason.CREDENTIALS_REFUSED,
        f"{place} was not asked: a key or token in checkpoint.store.credentialsSecret has a line "
        "break in it: write it into the Secret anew, in one line",
    )


def no_answer(error: Exception, place: object) -> StoreProblem:
    return StoreProblem(
        Reason.STORE_UNREACHABLE,
        f"{place} does not answer ({type(error).__name__}): check checkpoint.store.endpoint, the "
        "network and the server",
        transient=True,
    )


def is_ours(error: Exception) -> bool:
    """Whether its text was written here, so that it holds nothing of a request or an answer."""
    return type(error).__module__.startswith("rtj_")


# Raised by code that was called wrongly, whatever the other side answers: the same call would
# raise it again.
_OF_CODE = (AssertionError, AttributeError, ImportError, NameError, NotImplementedError, TypeError)


def unforeseen(error: Exception, what: str) -> StoreProblem:
    """Of an error that no table knows: its kind and where it was raised, never its text."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return StoreProblem(
        Reason.INTERNAL_ERROR,
        f"{what}: {type(error).__module__}.{type(error).__qualname__}{where}, which is not known "
        "here (its text may hold a credential and is not told); tried again by itself. If it "
        "stays, report this message as a defect",
        transient=not isinstance(error, _OF_CODE),
    )


def archived(what: str) -> StoreProblem:
    return StoreProblem(
        Reason.CHECKPOINT_ARCHIVED,
        f"{what}; the object is archived: ask the store to restore it, and try again when it has",
    )
