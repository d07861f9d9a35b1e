"""What a store's answer can mean beside success and trouble; drivers turn each into a result.

None of these leaves a driver. No I/O.
"""

from __future__ import annotations


class Absent(Exception):
    """404 for a key."""


class ConditionFailed(Exception):
    """412: the condition of a write did not hold."""


class BadDigest(Exception):
    """The server computed another checksum than the one we sent with the bytes."""


class NoSuchUpload(Exception):
    """The upload in progress is over: completed, aborted, or lost by the server."""


class Refused(Exception):
    """The server takes no such checksum with a write."""
