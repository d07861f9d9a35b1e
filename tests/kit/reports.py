"""Public reports of trouble with training jobs elsewhere, and which tests hold us to better.

Each row: where it was seen, its symptom, what happens here, and tests by name (`docs/reports.md` is
made of it; a test sees that they exist). Reports that only a framework's own code can mend are
here where the operator or the agent limits what they cost, and left out otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Report:
    """`where`: tracker and number, or what was found in published code."""

    where: str
    symptom: str
    here: str
    tests: tuple[str, ...]


REPORTS = (
    # --- launchers, libraries and frameworks -----------------------------------------------------
    Report(
        "NVIDIA/Megatron-LM#5281",
        "a checkpoint that loads goes wrong three steps later; the job repeats it 44 times",
        "two equal failures soon after resuming make the save suspect, the one before it is tried, "
        "and the save is marked once that got past the point",
        (
            "test_a_save_that_loads_and_goes_wrong_soon_after_is_left_at_the_second_time",
            "test_only_durable_work_beyond_the_point_proves_a_save_bad",
        ),
    ),
    Report(
        "intelligent-machine-learning/dlrover#1065",
        "saves were in memory only and are lost: training begins with random weights and a warning",
        "once a step was durable, step 0 needs a person's word; else the job is held",
        (
            "test_saves_that_are_gone_never_mean_random_weights",
            "test_without_a_save_that_can_be_used_it_holds_and_goes_on_by_consent",
        ),
    ),
    Report(
        "intelligent-machine-learning/dlrover#770",
        "after a restart one worker loads the checkpoint, the others begin anew",
        "one save is chosen for all, and no trainer starts before all ranks hold it",
        (
            "test_all_ranks_start_from_the_same_step",
            "test_no_go_before_all_ranks_hold_the_same_save",
        ),
    ),
    Report(
        "intelligent-machine-learning/dlrover#1175",
        "one pod stays Pending and all others time out in the rendezvous",
        "nobody waits in a rendezvous: trainers start when all ranks are ready",
        ("test_one_pending_pod_does_not_time_the_others_out",),
    ),
    Report(
        "huggingface/transformers#35782, #35525",
        "killed during a save: the directory with the highest number lacks its state file, and "
        "every resume dies",
        "an incomplete save is put aside, the newest whole one is where the trainer looks",
        (
            "test_hf_killed_anywhere_in_its_save",
            "test_a_torn_newest_goes_to_quarantine_and_an_older_one_is_the_newest",
        ),
    ),
    Report(
        "Lightning-AI/pytorch-lightning#688",
        "SIGKILL in a save leaves a truncated file; loading it ends with EOF",
        "a file that is cut off is torn: it is never chosen, an older save is",
        ("test_a_torch_save_killed_in_the_middle_is_torn", "test_nothing_torn_is_ever_committed"),
    ),
    Report(
        "Lightning-AI/pytorch-lightning#20806",
        "SIGTERM is seen by one rank; it leaves after its step, the others hang in the next",
        "all ranks are told of one step at which they save and end",
        (
            "test_ranks_that_agree_on_a_stop_step_lose_none",
            "test_the_ending_pod_is_told_first_and_the_others_when_it_has_it",
        ),
    ),
    Report(
        "mosaicml/composer#3376",
        "the pointer to the newest checkpoint is uploaded before its data",
        "the record that makes a save exist is written last, once every object was verified",
        ("test_nothing_torn_is_ever_committed",),
    ),
    Report(
        "pytorch/pytorch#67742, #147064",
        "an agent is killed: the others wait for ever; or it is back at once and the limit of "
        "restarts is not kept",
        "who is a member and how often it was started is in the job's status, not in a launcher; "
        "torchrun itself restarts nothing",
        (
            "test_a_trainer_killed_and_back_at_once_counts_against_the_limit",
            "test_codes_above_127_use_the_budget_too",
        ),
    ),
    Report(
        "pytorch/pytorch PR#99051",
        "after one segfault the other nodes hold their GPUs for five minutes at a barrier",
        "the survivors are stopped in the pass that records the fault",
        ("test_after_a_segfault_nobody_waits_at_a_barrier",),
    ),
    Report(
        "meta-pytorch/torchft#329",
        "948 s from a fault until it trains again, and nobody knows where they went",
        "every attempt records its phases, and they sum to the whole",
        ("test_the_stages_sum_to_the_whole",),
    ),
    Report(
        "pytorch/torchtitan#930",
        "an asynchronous save returns before its state is staged, and cannot be loaded",
        "what a process still has open for writing, or has just changed, is no save yet",
        (
            "test_an_open_writer_and_a_file_never_seen_are_not_quiet",
            "test_what_still_changes_is_writing_and_not_read",
        ),
    ),
    Report(
        "KempnerInstitute/KempnerForge#102",
        "the old checkpoint is pruned before the new one is on disk",
        "only what is durable elsewhere goes, and never the newest two",
        (
            "test_on_a_pod_volume_the_oldest_durable_saves_go",
            "test_the_newest_two_stay_however_full_it_is",
        ),
    ),
    Report(
        "KempnerInstitute/KempnerForge#177",
        "SIGTERM kills the data loaders first, no emergency save is made, and the wreck is resumed",
        "SIGTERM goes to the trainer, which has its grace; what a kill leaves is a torn save",
        (
            "test_sigterm_of_the_pod_is_forwarded_and_it_stays_until_released",
            "test_what_a_killed_save_left_is_a_torn_save",
        ),
    ),
    Report(
        "NVIDIA/Megatron-LM#1435",
        "one failed upload kills the training",
        "training does not wait for a store: an upload that fails is tried again, and told",
        ("test_503_for_long_costs_nothing_but_the_lag",),
    ),
    Report(
        "NVIDIA-NeMo/Automodel#763",
        "optimizer and scheduler are not restored, the learning rate is back at its beginning",
        "the learning rate of steps that are made twice is compared, by a new pod as well",
        (
            "test_a_new_pod_knows_where_the_learning_rate_stood",
            "test_another_learning_rate_is_a_drift_without_a_name",
        ),
    ),
    Report(
        "ai2cm/ace#1398, #1438",
        "preempted ranks are killed in the middle of a collective",
        "they end at a step on which all agree, if enough time is left; else it is said",
        (
            "test_ranks_that_agree_on_a_stop_step_lose_none",
            "test_a_deletion_leaves_what_the_api_server_says",
        ),
    ),
    Report(
        "NVIDIA/nccl#2349",
        "a communicator is restored in an endless loop, without a line in the log",
        "every phase has a deadline, and who makes no step any more is found",
        (
            "test_a_phase_that_never_ends_is_ended",
            "test_a_gang_that_does_nothing_is_started_again_in_place",
        ),
    ),
    Report(
        "awslabs/s3-connector-for-pytorch#219, #232",
        "one part of a large upload fails, the error says nothing, and the upload is lost",
        "a part is sent again, and what was said of it is in the report",
        (
            "test_a_large_file_goes_up_and_down_through_faults",
            "test_a_store_that_stays_busy_is_said_to_be_and_nothing_is_visible",
        ),
    ),
    # --- operators and queues --------------------------------------------------------------------
    Report(
        "kubeflow/trainer#2045",
        "exit codes above 127: the pod is made anew for ever, the limit is ignored",
        "every restart for a fault of the job's own uses its budget, in status",
        ("test_codes_above_127_use_the_budget_too",),
    ),
    Report(
        "kubeflow/trainer#2044",
        "failed for good, and shown as Restarting",
        "one terminal condition, with its time, and nothing after it",
        ("test_a_failed_job_has_one_terminal_condition_and_a_time", "test_terminal_absorbs"),
    ),
    Report(
        "kubeflow/trainer#2000, #2269, #1478",
        "one of many pods dies, the others time out one by one and never meet again",
        "one restart of the gang; the cascade counts once",
        ("test_a_cascade_counts_once", "test_a_cascade_in_a_large_gang_counts_once"),
    ),
    Report(
        "kubeflow/trainer#2072, kubernetes-sigs/kueue#6489",
        "a node loses power: its pod is Terminating for ever, the job Restarting for ever",
        "a silent node's pods are replaced elsewhere and forced away, fenced off from the store",
        (
            "test_a_pod_stuck_on_a_dead_node_is_forced_away",
            "test_a_zombie_that_had_looked_before_its_successor_claimed_publishes_nothing",
        ),
    ),
    Report(
        "kubeflow/trainer#2185",
        "a GPU fails, no pod does, and nobody notices",
        "the words of the fault and the node's own lost GPUs move the rank, and new pods keep off",
        (
            "test_a_gpu_that_failed_in_one_job_keeps_the_next_off_its_node",
            "test_a_node_with_a_gpu_gone_is_left_alone_by_new_pods",
        ),
    ),
    Report(
        "kubeflow/trainer#1570, #1560, #999",
        "a node shuts down, or a pod is deleted or preempted, and the job has failed",
        "an infrastructure cause restarts free of charge",
        ("test_node_shutdown_uses_no_budget", "test_infrastructure_never_uses_the_users_budget"),
    ),
    Report(
        "kubeflow/trainer#3779, #3737, #2981",
        "the children of a finished job are removed by their TTL, made again, and counted from 0",
        "the end is in the job's own status: nothing that goes afterwards reopens it",
        ("test_children_lost_after_the_end_reopen_nothing",),
    ),
    Report(
        "kubeflow/trainer#3671, #2351",
        "why nothing can be built is in Events alone, the status is empty",
        "a condition says what is wrong with which field",
        ("test_a_spec_that_cannot_run_says_so_in_a_condition",),
    ),
    Report(
        "kubeflow/trainer#2408, #3429",
        "counters are raised twice, or with every look",
        "counters change in the guarded write of status, once",
        ("test_the_same_failure_seen_five_times_counts_once", "test_status_writes_come_to_rest"),
    ),
    Report(
        "kubeflow/trainer#1982, #1579",
        "the job has ended and its workers still hold GPUs",
        "the pods of a job that is over go, also those that ignore SIGTERM",
        ("test_a_finished_job_holds_no_gpu_even_if_a_worker_ignores_sigterm",),
    ),
    Report(
        "kubernetes-sigs/jobset#574",
        "a pod is replaced alone, and the gang hangs",
        "any lost rank is a decision about the gang: all share the next attempt's number",
        ("test_a_lost_pod_restarts_the_gang_with_one_attempt_number",),
    ),
    Report(
        "kubernetes-sigs/jobset#1129, #976, #982",
        "one budget for all kinds of failure",
        "budgets are by cause: the job's own faults have a limit, others are free and paced",
        (
            "test_only_the_jobs_own_faults_use_its_budget",
            "test_every_cause_says_whose_budget_it_uses",
        ),
    ),
    Report(
        "kubernetes-sigs/jobset#613, PR#872",
        "no counter of restarts, and series by name that never go",
        "a counter with bounded labels, and a job's series go with it",
        ("test_series_vanish_with_the_job", "test_a_storm_over_many_jobs"),
    ),
    Report(
        "kubernetes-sigs/jobset#1282",
        "suspended and resumed it keeps its attempt, and the logs are mixed",
        "resuming is a new attempt, and uses no budget",
        ("test_resume_after_suspend_is_a_new_attempt",),
    ),
    Report(
        "kubernetes-sigs/jobset PR#1276",
        "a failed pod that lingers is counted, and its successors are refused",
        "pods that are over count for nothing",
        ("test_a_failed_pod_that_lingers_blocks_nothing",),
    ),
    Report(
        "kubernetes-sigs/kueue#14092, #15369",
        "the replacement lands on the failed node again",
        "it keeps off for a time, from a share of the cluster at most",
        (
            "test_a_replacement_keeps_off_the_node_that_was_lost",
            "test_only_a_share_of_the_cluster_is_avoided",
        ),
    ),
    Report(
        "volcano-sh/volcano#2560, #5885",
        "one eviction is two events, and uses up two retries",
        "one cause for each pod's end, and an eviction is free",
        ("test_an_eviction_seen_twice_is_one_cause_and_free",),
    ),
    Report(
        "volcano-sh/volcano#3967",
        "a pod fails while the controller is away: the policy is skipped, the job has failed",
        "what is decided follows from what is there, not from which event came",
        (
            "test_a_failure_while_the_operator_was_away_is_decided_all_the_same",
            "test_same_end_wherever_the_operator_dies",
        ),
    ),
    Report(
        "ray-project/kuberay#2155, #5211",
        "a new driver begins at 0 beside a good checkpoint; two attempts write at once",
        "what to resume is told to every pod, and only the newest attempt can publish",
        (
            "test_a_restart_resumes_and_attempts_never_overlap",
            "test_what_a_zombie_publishes_is_refused",
        ),
    ),
    Report(
        "ray-project/kuberay#715",
        "a stale cache: pods are made twice",
        "a pod's name is a function of rank and attempt: made twice it is one",
        ("test_nothing_is_made_twice", "test_it_comes_to_rest_and_stays"),
    ),
    # --- found in published code -----------------------------------------------------------------
    Report(
        "Kubeflow v1, PyTorchJob",
        "a failure is counted twice, and again with each look while the failed pod exists",
        "a start is counted in the write that records it",
        ("test_the_same_failure_seen_five_times_counts_once",),
    ),
    Report(
        "Kubeflow v1, PyTorchJob",
        "a job that failed for good has no completion time, and its TTL never works",
        "a failed job has its time and its time to live like any other",
        ("test_a_failed_job_has_the_same_time_to_live",),
    ),
    Report(
        "Kubeflow v1, PyTorchJob",
        "a pod that the kubelet refused has no container's state, and is taken for one to retry",
        "a refusal is told from the pod's reason, and is free",
        ("test_a_pod_that_the_kubelet_refused_is_made_anew_at_no_charge",),
    ),
    Report(
        "Kubeflow v1, PyTorchJob",
        "the check of an update compares the new object with itself",
        "what must not change is refused by the API server, each field with a test",
        ("test_what_a_run_is_bound_to_cannot_be_changed",),
    ),
    Report(
        "Kubeflow v1, PyTorchJob",
        "failures are counted in the controller's memory",
        "an operator that dies anywhere leads to the same counters",
        ("test_same_end_wherever_the_operator_dies",),
    ),
    Report(
        "Kubeflow v1, PyTorchJob",
        "an elastic job has succeeded when any worker has",
        "all ranks, or rank 0 where the job says so",
        ("test_success_of_one_rank_is_no_success",),
    ),
    Report(
        "Kubeflow v1, PyTorchJob",
        "a condition keeps the message and time of the first restart",
        "each of the last ten attempts is in status with its cause",
        ("test_each_restart_is_kept_in_the_history",),
    ),
    Report(
        "JobSet, restarts in place",
        "the restarts of a sidecar's container count against the job's limit",
        "a sidecar may die as often as it likes",
        ("test_a_flapping_sidecar_does_not_fail_the_job", "test_a_sidecar_that_flaps_harms_nobody"),
    ),
    Report(
        "JobSet, metrics",
        "series by name are never removed",
        "they go with the job",
        ("test_series_arrive_with_the_labels_of_the_job_and_vanish_with_it",),
    ),
    Report(
        "Kubeflow Trainer v2, progress",
        "a report of an older attempt is taken for news",
        "reports bear their attempt, boot and number: an older one says nothing",
        ("test_reports_of_older_attempts_are_ignored",),
    ),
    Report(
        "Kubeflow Trainer v2, status",
        "restarts are not shown",
        "phase, attempt and restarts are in status and in the columns",
        ("test_get_shows_the_columns", "test_columns_read_fields_that_exist"),
    ),
    Report(
        "Volcano, retries",
        "the count of retries is never reset",
        "newly durable work refills the budget",
        ("test_progress_gives_credit", "test_durable_progress_refills_everything"),
    ),
    Report(
        "KubeRay, pods",
        "a container that restarts again and again on a bad node is never moved",
        "in place has a limit; then the pods are new, or elsewhere",
        ("test_in_place_has_a_limit_then_all_pods_are_new",),
    ),
)
