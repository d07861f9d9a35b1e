"""The rules that the API server checks when a job is applied, each with what to do about it.

They are CEL in the subset of Kubernetes 1.29, kept apart from the models so that each is one
named thing with one accepting and one refusing test on a real API server. What CEL cannot see
(a Secret that is missing, a mount that is read-only) is the operator's condition `Accepted`.
Must never hold a rule without a remedy in its message.
"""

from rtj_api.validations.checkpoint import (
    CHECKPOINT,
    CHECKPOINT_PATH,
    INCLUDE,
    INTERVAL,
    LOCAL,
    LOCAL_SIZE,
    MAX_RESTORE,
    NOT_FOR_CHECKPOINTS,
    PROBE_COMMAND,
    REQUIRED_KEYS,
    RESUME_ARGS,
    RESUME_FROM,
    RESUME_VARIABLES,
    RETENTION,
    RUN_ID,
    TAKE_OVER,
)
from rtj_api.validations.elastic import ELASTIC, ELASTIC_OF_JOB
from rtj_api.validations.every import ALL_RULES
from rtj_api.validations.job import (
    BACKOFF,
    FAILURE_RULES,
    JOB,
    MANAGED_BY,
    MAX_NAME_AND_RANK,
    OUTPUTS,
    REPLICAS,
    SPEC,
)
from rtj_api.validations.pod import POD_SPEC, TEMPLATE_METADATA
from rtj_api.validations.rule import Rule, immutable, rules
from rtj_api.validations.scheduling import SCHEDULING
from rtj_api.validations.store import CA_BUNDLE, STORE_ENDPOINT, STORE_URL, UPLOAD_RATE

__all__ = [
    "ALL_RULES",
    "BACKOFF",
    "CA_BUNDLE",
    "CHECKPOINT",
    "CHECKPOINT_PATH",
    "ELASTIC",
    "ELASTIC_OF_JOB",
    "FAILURE_RULES",
    "INCLUDE",
    "INTERVAL",
    "JOB",
    "LOCAL",
    "LOCAL_SIZE",
    "MANAGED_BY",
    "MAX_NAME_AND_RANK",
    "MAX_RESTORE",
    "NOT_FOR_CHECKPOINTS",
    "OUTPUTS",
    "POD_SPEC",
    "PROBE_COMMAND",
    "REPLICAS",
    "REQUIRED_KEYS",
    "RESUME_ARGS",
    "RESUME_FROM",
    "RESUME_VARIABLES",
    "RETENTION",
    "RUN_ID",
    "SCHEDULING",
    "SPEC",
    "STORE_ENDPOINT",
    "STORE_URL",
    "TAKE_OVER",
    "TEMPLATE_METADATA",
    "UPLOAD_RATE",
    "Rule",
    "immutable",
    "rules",
]
