"""Rules on `checkpoint.store`. Must never hold a rule without a remedy in its message."""

from __future__ import annotations

from typing import Final

from rtj_api.stores import PLACE_PATTERN, SCHEMES, URL_FORMS
from rtj_api.validations.rule import SAME_RUN, Rule, immutable

STORE_URL: Final = (
    Rule(
        "store-scheme",
        f"self.matches('^({'|'.join(scheme.name for scheme in SCHEMES)})://')",
        f"the store's scheme is unknown: write {URL_FORMS}",
    ),
    Rule(
        "store-url-place",
        f"self.startsWith('file://') || "
        f"self.matches('^[a-z0-9]+://{PLACE_PATTERN}(:[0-9]+)?(/[^?#]*)?$')"
        " && (!self.matches('^[a-z0-9]+://[^/]*:') || self.startsWith('hdfs://'))",
        "not a place in a store: write s3://bucket or s3://bucket/prefix (gs://bucket, "
        "az://container, hdfs://namenode alike), without credentials or query; credentials go into "
        "a Secret named by credentialsSecret, a server into endpoint",
    ),
    Rule(
        "store-url-file",
        "!self.startsWith('file://') || self.matches('^file:///[^/?#].*$')",
        "not a directory: write file:///directory with three slashes",
    ),
    Rule(
        "store-url-dots",
        "!('..' in self.split('/')) && !('.' in self.split('/'))",
        "the store's url may not contain '.' or '..' as a part of its path: write it in full",
    ),
    immutable("store.url", remedy=SAME_RUN),
)


STORE_ENDPOINT: Final = (
    Rule(
        "endpoint",
        r"self.matches('^https?://[^/@?#;]+(/[a-z0-9]*)?(;https?://[^/@?#;]+/?)*$')",
        "endpoint is the URL of the store's server, http://host:port or https://host:port, without "
        "credentials",
    ),
)


UPLOAD_RATE: Final = (
    Rule(
        "upload-rate",
        "type(self) == int ? self >= 65536 : "
        "quantity(string(self)).compareTo(quantity('64Ki')) >= 0",
        "store.maxUploadBytesPerSecond is below 64Ki, with which no checkpoint of use would ever "
        "arrive: write bytes a second, such as 50M, or leave it out",
    ),
)


CA_BUNDLE: Final = (
    Rule(
        "ca-bundle-source",
        "has(self.configMap) != has(self.secret)",
        "caBundle names one object that holds the certificates: state either configMap or secret",
    ),
)
