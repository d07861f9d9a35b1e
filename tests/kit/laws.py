"""The laws that the product must keep, and what checks each: for `docs/simulation.md`.

`checks` run at every write, start and pass of every simulated schedule and story; `tests` prove the
law elsewhere too. Holds functions, not their names, so that none can be renamed away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kit import schedules, simulated_laws
from kit.simulated_store import Store


@dataclass(frozen=True)
class Law:
    law: str
    checks: tuple[Callable[..., Any], ...]
    tests: tuple[str, ...]


LAWS = (
    Law(
        "A decision is recorded before anything is done about it",
        (simulated_laws.is_decided_first, simulated_laws.start_is_recorded),
        ("test_it_decides_or_acts_never_both_and_always_looks_again",),
    ),
    Law(
        "A pod's name is a function of the job's UID, its rank or spare, and its attempt",
        (simulated_laws.has_its_name, simulated_laws.check_directive),
        ("test_a_pod_plays_one_rank_and_a_rank_one_pod",),
    ),
    Law(
        "Counters change in the guarded write of status alone, once, whoever crashes",
        (simulated_laws.rising, simulated_laws.counted_once),
        (
            "test_attempts_only_rise_and_counters_count_once",
            "test_same_end_wherever_the_operator_dies",
        ),
    ),
    Law(
        "`decide` is total, deterministic and indifferent to order, and comes to rest",
        (simulated_laws.is_steady, simulated_laws.comes_to_rest),
        (
            "test_it_is_total_deterministic_and_its_words_are_json",
            "test_the_order_of_pods_means_nothing",
            "test_status_writes_come_to_rest",
        ),
    ),
    Law("An end is an end", (simulated_laws.rising, schedules.settled), ("test_terminal_absorbs",)),
    Law(
        "Every wait has an end, and every error is looked at again",
        (simulated_laws.waits_with_an_end, schedules.settled),
        ("test_it_decides_or_acts_never_both_and_always_looks_again",),
    ),
    Law(
        "Never two trainers of one rank in one attempt",
        (simulated_laws.one_trainer_a_rank, simulated_laws.a_spare_plays_one_rank),
        ("test_a_restarted_container_starts_no_attempt_twice",),
    ),
    Law(
        "No trainer starts before all ranks have restored the same save",
        (simulated_laws.all_have_restored,),
        ("test_no_go_before_all_ranks_hold_the_same_save",),
    ),
    Law(
        "Infrastructure never uses the user's budget",
        (simulated_laws.infrastructure_is_free,),
        ("test_the_budget_is_never_exceeded_and_infrastructure_is_free",),
    ),
    Law(
        "Unknown is not failed, unreachable is not empty",
        (simulated_laws.never_scratch_by_accident, schedules.settled),
        ("test_unknown_is_not_hung", "test_leases_that_could_not_be_read_are_unknown_not_stale"),
    ),
    Law(
        "Timers and marks of what is under way belong to one attempt",
        (simulated_laws.belongs_to_one_attempt,),
        ("test_reports_of_older_attempts_are_ignored",),
    ),
    Law(
        "The ledger of time sums to the time since the job was made",
        (simulated_laws.keeps_time, simulated_laws.ledger_covers),
        ("test_it_sums_and_never_falls_whatever_is_written", "test_the_stages_sum_to_the_whole"),
    ),
    Law(
        "A crash of operator, sidecar or supervisor between any two writes leads to the same end",
        (schedules.settled,),
        (
            "test_same_end_wherever_the_operator_dies",
            "test_a_death_between_any_two_calls_leads_to_the_same_end_state",
            "test_a_sidecar_killed_on_the_way_comes_back_to_the_same_agreement",
            "test_a_restarted_container_reports_and_never_starts_the_attempt_again",
        ),
    ),
    Law(
        "Every committed save is reached from the newest fence, or lies on a recorded branch",
        (Store.check_lineage,),
        ("test_laws_hold_for_overlapping_attempts", "test_a_zombies_late_commit_is_no_candidate"),
    ),
    Law(
        "Only the newest holder publishes",
        (Store.publishes_as_holder,),
        ("test_a_zombie_that_had_looked_before_its_successor_claimed_publishes_nothing",),
    ),
    Law(
        "The last durable step goes back by a recorded decision only",
        (simulated_laws.rising, schedules.never_below),
        ("test_last_durable_step_falls_only_with_a_choice",),
    ),
)
