"""Pages of a listing, read without what nobody asks for.

botocore turns every `LastModified` into a date with a general parser, which takes two thirds of the
time of a listing, and reads each page once more before that, to see whether it is an error; order
never rests on a date here. Only the four fields that `Listed` has are read, in one go, and all else
of the page is left to botocore. Must never guess: a page that is not as S3's reference describes it
(ListObjectsV2, "Contents") is botocore's to judge, as if this were not here.
"""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from botocore import handlers

_TEXTS = ("Key", "ETag", "StorageClass")
# Handlers of all operations are called before those of one, whatever their order.
_ANY = "before-parse.s3.*"


def attach(client: Any) -> None:
    """Have `client` read its listings so. Without the event nothing changes but the time."""
    events = client.meta.events
    look_for_errors = getattr(handlers, "_handle_200_error", None)
    if look_for_errors is not None:
        events.unregister(_ANY, look_for_errors)
    events.register_first(_ANY, _read)
    if look_for_errors is not None:
        events.register_first(_ANY, look_for_errors)


def _read(
    *,
    operation_model: Any,
    response_dict: dict[str, Any],
    customized_response_dict: dict[str, Any],
    **_: Any,
) -> None:
    if operation_model.name != "ListObjectsV2" or response_dict["status_code"] >= 300:
        return
    found = contents_of(response_dict["body"])
    if found is None:
        return
    response_dict["body"], contents = found
    if contents:
        customized_response_dict["Contents"] = contents


def contents_of(body: bytes) -> tuple[bytes, list[dict[str, Any]]] | None:
    """(the page without its entries, the entries); None where it is no such page."""
    try:
        root = ElementTree.fromstring(body)
    except ElementTree.ParseError:
        return None
    space, _, name = root.tag.rpartition("}")
    within = f"{space}}}" if space else ""
    if name != "ListBucketResult":
        return None
    wanted = {f"{within}{field}": field for field in _TEXTS}
    size_tag, entries = f"{within}Size", root.findall(f"{within}Contents")
    contents: list[dict[str, Any]] = []
    for entry in entries:
        read: dict[str, Any] = {}
        for child in entry:
            if (field := wanted.get(child.tag)) is not None:
                read[field] = child.text or ""
            elif child.tag == size_tag:
                if not (text := child.text or "").isdecimal():
                    return None
                read["Size"] = int(text)
        if "Key" not in read or "Size" not in read:
            return None
        contents.append(read)
    for entry in entries:
        root.remove(entry)
    return ElementTree.tostring(root), contents
