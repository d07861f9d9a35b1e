"""Every rule of the API, for documents and tests. Must never hold a rule of its own."""

from __future__ import annotations

from typing import Final

from rtj_api.validations.checkpoint import (
    CHECKPOINT,
    CHECKPOINT_PATH,
    INCLUDE,
    INTERVAL,
    LOCAL,
    LOCAL_SIZE,
    MAX_RESTORE,
    PROBE_COMMAND,
    REQUIRED_KEYS,
    RESUME_ARGS,
    RESUME_FROM,
    RETENTION,
    RUN_ID,
    TAKE_OVER,
)
from rtj_api.validations.elastic import ELASTIC, ELASTIC_OF_JOB
from rtj_api.validations.job import BACKOFF, FAILURE_RULES, JOB, MANAGED_BY, OUTPUTS, REPLICAS, SPEC
from rtj_api.validations.pod import POD_SPEC, TEMPLATE_METADATA
from rtj_api.validations.scheduling import SCHEDULING
from rtj_api.validations.store import CA_BUNDLE, STORE_ENDPOINT, STORE_URL, UPLOAD_RATE

ALL_RULES: Final = (
    *JOB,
    *REPLICAS,
    *STORE_URL,
    *STORE_ENDPOINT,
    *UPLOAD_RATE,
    *CA_BUNDLE,
    *CHECKPOINT_PATH,
    *INCLUDE,
    *OUTPUTS,
    *RUN_ID,
    *TAKE_OVER,
    *RESUME_FROM,
    *RESUME_ARGS,
    *PROBE_COMMAND,
    *REQUIRED_KEYS,
    *CHECKPOINT,
    *INTERVAL,
    *RETENTION,
    *LOCAL,
    *LOCAL_SIZE,
    *MAX_RESTORE,
    *BACKOFF,
    *FAILURE_RULES,
    *SPEC,
    *ELASTIC,
    *ELASTIC_OF_JOB,
    *MANAGED_BY,
    *SCHEDULING,
    *POD_SPEC,
    *TEMPLATE_METADATA,
)
