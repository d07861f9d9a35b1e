"""Rules on `elastic`. Must never hold a rule without a remedy in its message."""

from __future__ import annotations

from typing import Final

from rtj_api.validations.rule import Rule

_REPLICAS = "(has(self.replicas) ? self.replicas : 1)"
_TIMEOUT = (
    "(has(self.recovery) && has(self.recovery.placementTimeoutSeconds) ? "
    "self.recovery.placementTimeoutSeconds : 600.0)"
)
_AFTER = "(has(self.elastic.scaleDownAfterSeconds) ? self.elastic.scaleDownAfterSeconds : 120.0)"

ELASTIC: Final = (
    Rule(
        "elastic-batch",
        "has(self.globalBatch) == has(self.microBatch)",
        "elastic.globalBatch and elastic.microBatch together give the accumulation: set both, or "
        "neither",
    ),
    Rule(
        "elastic-learning-rate",
        "!has(self.globalBatch) || !has(self.learningRate) || self.learningRate == 'None'",
        "with elastic.globalBatch the batch is the same at every size, and so is the learning "
        "rate: remove elastic.learningRate, or globalBatch and microBatch",
    ),
    Rule(
        "elastic-allowed",
        "!has(self.allowedReplicas) || self.allowedReplicas.all(n, n >= self.minReplicas)",
        "elastic.allowedReplicas lists a size below elastic.minReplicas: remove it, or lower "
        "minReplicas",
    ),
)

ELASTIC_OF_JOB: Final = (
    Rule(
        "elastic-min",
        f"!has(self.elastic) || self.elastic.minReplicas < {_REPLICAS}",
        "elastic.minReplicas must be below replicas, or the gang has no other size: lower it, or "
        "remove elastic",
    ),
    Rule(
        "elastic-most",
        "!has(self.elastic) || !has(self.elastic.allowedReplicas) || "
        f"self.elastic.allowedReplicas.all(n, n <= {_REPLICAS})",
        "elastic.allowedReplicas lists a size above replicas, which is the largest: remove it, or "
        "make the job with more replicas",
    ),
    Rule(
        "elastic-gang",
        "!has(self.elastic) || !has(self.scheduling) || !has(self.scheduling.gang) || "
        "self.scheduling.gang == 'none'",
        "a queue or gang scheduler lets all pods of the gang run or none, so it never has room for "
        "a part of it: remove elastic, or set scheduling.gang to none",
    ),
    Rule(
        "elastic-patience",
        f"!has(self.elastic) || {_AFTER} < {_TIMEOUT}",
        "elastic.scaleDownAfterSeconds must be below recovery.placementTimeoutSeconds (600), after "
        "which all pods are given back: lower it, or raise the time-out",
    ),
)
