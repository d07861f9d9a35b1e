"""The API `resumable-training.dev/v1alpha1`: what a person writes into a ResumableTrainingJob.

The CRD is generated from these models (`rtj_api.crdgen`), their docstrings and descriptions are
what `kubectl explain` prints, and the operator reads a job through them; so the three cannot
disagree. A rule that the API server can check stands beside its field, with a message that names
the remedy. Must never do I/O, and must never hold a field that nothing reads.
"""

from rtj_api.v1alpha1.base import MAX_REPLICAS, GlobText, PathText, Quantity, SecretName
from rtj_api.v1alpha1.checkpoint import (
    Checkpoint,
    LayoutName,
    Local,
    Medium,
    Mirror,
    OnExistingRun,
    OnNoValid,
)
from rtj_api.v1alpha1.elastic import Elastic, GrowWhen
from rtj_api.v1alpha1.failure_rules import FailureRule
from rtj_api.v1alpha1.interval import Interval
from rtj_api.v1alpha1.job import Framework, JobSpec
from rtj_api.v1alpha1.lifetime import Success, SuccessRanks
from rtj_api.v1alpha1.recovery import AvoidNodes, Backoff, Recovery, SuspendPolicy
from rtj_api.v1alpha1.scheduling import GangScheduler, Scheduling
from rtj_api.v1alpha1.sidecar import ImagePullPolicy, Resources, Sidecar
from rtj_api.v1alpha1.store import BestMode, CaBundle, KeepBest, Retention, Store, Thin
from rtj_api.v1alpha1.watching import (
    Hang,
    OnDivergence,
    OnDrift,
    OnHang,
    OnSlow,
    StackSignal,
    Stop,
    StopBy,
    Straggler,
    VerifyResume,
)

__all__ = [
    "MAX_REPLICAS",
    "AvoidNodes",
    "Backoff",
    "BestMode",
    "CaBundle",
    "Checkpoint",
    "Elastic",
    "FailureRule",
    "Framework",
    "GangScheduler",
    "GlobText",
    "GrowWhen",
    "Hang",
    "ImagePullPolicy",
    "Interval",
    "JobSpec",
    "KeepBest",
    "LayoutName",
    "Local",
    "Medium",
    "Mirror",
    "OnDivergence",
    "OnDrift",
    "OnExistingRun",
    "OnHang",
    "OnNoValid",
    "OnSlow",
    "PathText",
    "Quantity",
    "Recovery",
    "Resources",
    "Retention",
    "Scheduling",
    "SecretName",
    "Sidecar",
    "StackSignal",
    "Stop",
    "StopBy",
    "Store",
    "Straggler",
    "Success",
    "SuccessRanks",
    "SuspendPolicy",
    "Thin",
    "VerifyResume",
]
