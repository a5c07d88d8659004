//! What every store must do, as one suite: a case is an async function that is given an empty store and notices what
//! a user would notice. Whoever writes a store runs it with [`conformance!`](crate::conformance).
//!
//! Every case puts at least two jobs into the store, so that a statement which forgets to say which job it means
//! cannot pass.

pub mod again;
pub mod claim;
pub mod enqueue;
pub mod gates;
pub mod keep;
mod kit;
pub mod lease;
pub mod look;
pub mod next;
pub mod operate;
pub mod order;
pub mod settle;
pub mod steer;
pub mod tied;

/// Makes a module with one test for each thing a [`Store`](crate::Store) must do.
///
/// It is given a name and an async expression that makes an empty store, together with whatever has to outlive it.
///
/// ```
/// redrive::conformance!(memory, async { (redrive::MemoryStore::new(), ()) });
/// ```
#[macro_export]
macro_rules! conformance {
    ($name:ident, $make:expr) => {
        mod $name {
            use super::*;
            $crate::conformance_cases!($make);
        }
    };
}

/// The list of cases. Use [`conformance!`](crate::conformance).
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_cases {
    ($make:expr; $($concept:ident { $($case:ident)* })*) => {$($(
        #[tokio::test]
        async fn $case() {
            let (store, _outlives_it) = $make.await;
            $crate::testing::conformance::$concept::$case(::std::sync::Arc::new(store)).await;
        }
    )*)*};
    ($make:expr) => {
        $crate::conformance_cases! { $make;
            enqueue {
                what_is_enqueued_is_there_as_it_was_admitted
                the_history_of_a_job_comes_with_it
                a_job_says_who_asked_for_it
                a_call_takes_all_of_its_jobs_or_none
                the_same_id_twice_is_one_job
                a_job_sent_again_is_not_refused_because_it_is_there
                a_finished_job_sent_again_touches_nobody_who_has_its_key_now
                a_taken_key_with_ignore_answers_with_the_job_that_has_it
                a_taken_key_with_reject_is_refused
                a_taken_key_with_replace_puts_the_new_content_into_the_waiting_job
                a_running_job_is_not_replaced
                a_job_replaced_into_another_queue_is_counted_and_claimed_there
                a_key_twice_in_one_call_is_treated_as_if_it_came_in_two
                a_key_is_free_again_after_each_final_state
                a_call_sent_again_is_given_the_same_answer
                a_call_is_remembered_for_thirty_days
                a_full_queue_refuses_before_anything_is_written
                a_queue_is_full_of_what_waits_and_what_runs
            }
            claim {
                no_job_is_claimed_before_it_is_due
                a_higher_priority_goes_first
                within_a_priority_what_was_due_first_goes_first
                an_ordering_key_does_not_cost_a_job_its_place
                no_more_is_claimed_than_was_asked_for
                one_claim_takes_from_several_queues_as_many_as_each_may
                what_is_claimed_is_not_claimed_again
                a_claim_sent_again_is_told_the_same_and_given_nothing_more
                a_claimed_job_runs_until_its_attempt_ends
                a_claimed_job_comes_with_all_that_it_is
                a_holder_nobody_knows_claims_nothing
                a_claim_for_kinds_leaves_the_others_to_others
                what_other_kinds_are_waiting_for_is_not_said_to_be_due
                a_claim_says_when_the_next_job_will_be_due
                a_retry_and_an_expiry_are_due_next_too
                a_paused_queue_has_nothing_due_but_what_runs_out_of_time
                nothing_that_cannot_be_had_is_said_to_be_due
                a_job_that_crashed_is_claimed_alone
                a_claim_takes_one_suspect_or_none
                a_suspect_takes_one_place_over_all_queues
                what_has_run_out_of_time_is_handed_out_though_it_is_not_due
                what_has_run_out_of_time_is_handed_out_though_its_queue_is_paused
                what_has_run_out_of_time_is_handed_out_though_another_is_before_it
                a_start_by_binds_only_before_the_first_attempt
                a_paused_queue_hands_out_nothing_until_it_is_resumed
            }
            settle {
                a_success_leaves_its_output_and_no_attempt_record
                a_retry_goes_back_with_its_due_time_and_its_ledger
                a_job_that_gives_up_is_dead_with_its_failure_and_its_reason
                every_ending_moves_the_attempt
                settlements_of_one_call_are_answered_one_by_one
                a_settlement_with_the_wrong_claim_or_attempt_changes_nothing
                a_settlement_sent_twice_counts_once
                the_same_settlement_twice_in_one_call_counts_once
                a_settlement_for_a_lost_lease_changes_nothing
                a_settlement_after_a_cancel_changes_nothing
                a_settlement_for_a_job_that_is_forgotten_changes_nothing
                work_finished_after_its_lease_still_counts_while_nobody_ended_it
            }
            again {
                a_retry_that_is_due_at_once_is_claimed_with_its_settlement
                only_what_is_due_at_once_is_claimed_with_its_settlement
                what_a_paused_queue_or_an_order_holds_back_is_not_claimed_with_its_settlement
                those_that_go_on_together_keep_what_is_their_own
                one_that_cannot_go_on_does_not_keep_the_others
                nothing_goes_on_in_a_store_that_is_held
                a_settlement_sent_again_is_told_again_that_the_job_goes_on
                what_was_claimed_with_a_settlement_is_lost_with_its_holder
                what_was_claimed_with_a_settlement_can_be_taken_away
                nothing_is_claimed_with_a_settlement_for_a_holder_that_is_gone
            }
            lease {
                a_renewal_keeps_everything_its_holder_claimed
                a_lease_that_is_over_is_named_with_all_that_it_holds
                an_expiry_counts_a_crash_for_each_job_and_removes_the_holder
                once_an_expiry_is_recorded_its_holder_can_do_nothing_more
                an_expiry_is_refused_when_the_lease_was_renewed_meanwhile
                an_expiry_is_refused_when_its_holder_has_claimed_meanwhile
                an_expiry_is_refused_when_its_holder_has_settled_and_claimed_a_job_again
                an_expiry_leaves_what_was_settled_before_it
                a_holder_that_holds_nothing_can_be_let_go
                a_renewal_names_what_was_taken_away_until_its_holder_tries_to_settle_it
                a_job_that_kills_its_process_again_and_again_is_dead_and_its_neighbour_is_not
            }
            gates {
                a_shut_gate_holds_its_own_jobs_and_no_others
                an_ungated_destination_costs_nothing_and_has_nothing_to_say
                jobs_that_fail_in_a_row_shut_it_and_one_at_a_time_asks
                a_probe_whose_process_died_is_not_waited_for_for_ever
                a_retry_after_shuts_it_until_then_and_says_when
                a_rate_is_kept_over_all_who_claim
                what_is_handed_out_before_its_turn_says_when_that_is
                places_are_counted_from_what_runs_and_free_again_when_it_ends_or_dies
                first_attempts_go_before_retries_of_the_same_destination
                retries_keep_to_the_budget_until_none_waits_for_it
                what_is_held_can_be_cancelled_hurried_and_run_out_of_time
                held_time_that_does_not_count_moves_the_deadline
                a_policy_that_comes_later_decides_whether_held_time_counts
                what_waits_after_a_failure_is_due_when_it_is_hurried
                an_ordering_key_is_kept_through_a_shut_gate
                a_job_that_gets_another_destination_leaves_the_line
                what_becomes_of_a_gate_is_in_the_activity_log
            }
            order {
                jobs_of_one_key_run_one_at_a_time_in_order
                a_blocked_key_blocks_only_itself
                a_fifo_queue_is_one_key
                a_retry_blocks_those_behind_it
                a_retry_lets_those_behind_it_pass_where_the_queue_says_so
                a_delayed_first_job_holds_back_those_behind_it
                a_higher_priority_does_not_overtake_its_own_key
                cancelling_the_first_lets_the_next_go
                the_death_and_the_expiry_of_the_first_let_the_next_go
                a_crash_of_the_first_blocks_those_behind_it_until_it_is_final
                a_redriven_earlier_job_takes_its_turn
                an_expired_job_of_a_key_does_not_make_room_for_another
                a_replaced_first_job_lets_the_next_go_when_it_leaves_its_key
            }
            steer {
                a_waiting_job_can_be_cancelled
                a_running_job_can_be_cancelled
                a_waiting_job_can_be_made_due_now
                a_waiting_job_can_be_put_off_and_brought_forward
                a_dead_job_can_be_brought_back
                a_cancelled_job_can_be_brought_back_and_others_cannot
                a_dead_job_whose_key_another_has_stays_dead
                only_a_finished_job_can_be_deleted
                a_place_is_never_given_twice
                a_command_does_no_more_than_its_limit_and_only_to_what_matches
            }
            tied {
                what_comes_after_others_begins_when_all_of_them_have_succeeded
                what_waits_for_others_is_not_said_to_be_due_and_cannot_be_hastened
                a_retry_lets_nobody_go
                a_death_lets_the_parent_go_and_nobody_else
                a_cancelled_one_lets_the_parent_go_and_nobody_else
                a_second_death_does_not_shorten_a_delay_of_the_parent
                a_dead_one_that_comes_back_lets_go_those_behind_it
                what_is_forgotten_is_waited_for_no_longer
                a_cancelled_one_that_comes_back_waits_for_those_before_it
                an_execution_that_runs_can_be_told_to_look_again
                what_waits_for_others_can_run_out_of_time
                what_is_sent_again_is_not_tied_again
                the_same_call_sent_again_is_not_tied_again
                what_an_unfinished_parent_may_ask_for_is_not_forgotten
                how_jobs_ended_is_told_of_those_that_are_final
                an_ending_that_was_deleted_is_not_told
            }
            next {
                what_waited_for_a_success_is_claimed_with_it
                a_call_that_is_sent_again_is_told_again_what_has_begun
                what_begins_with_a_success_fails_and_crashes_as_any_other
                what_begins_with_a_success_can_be_cancelled
                only_what_needs_no_more_than_a_place_begins_with_a_success
                nothing_begins_with_a_success_for_whom_it_may_not
            }
            look {
                a_list_is_newest_first_and_comes_in_pages
                each_field_of_a_filter_is_respected
                jobs_can_be_listed_by_state
                jobs_can_be_found_by_the_fingerprint_of_their_last_failure
                the_last_failure_of_each_of_many_is_known
                dead_jobs_are_grouped_by_what_they_died_of
                counts_say_how_many_jobs_are_where
                totals_say_what_has_happened_ever
                the_activity_log_tells_what_a_person_would_want_to_know
                what_many_have_to_tell_at_once_is_told_line_by_line
                what_may_have_become_due_is_told
            }
            keep {
                finished_jobs_are_kept_as_long_as_their_outcome_says
                dead_jobs_are_kept_until_someone_acts_unless_told_otherwise
                forgetting_stops_at_its_limit_and_goes_on_the_next_time
                of_a_long_history_the_first_ten_and_the_last_ninety_are_kept
                the_activity_log_has_an_end
                records_are_kept_by_shelf_and_name
            }
            operate {
                what_happens_is_counted_in_its_minute
                retries_are_foretold_by_the_time_they_will_be_due
                retries_are_found_in_the_order_in_which_they_are_due
                who_did_what_is_kept_and_found_by_job
                a_change_is_written_down_with_what_it_does_and_not_where_nothing_can_be_done
                what_is_set_is_written_down_with_it
                a_notice_is_kept_once_however_many_notice_it
                a_waiting_job_can_be_corrected_and_remembers_what_it_was
                a_dead_job_can_be_corrected_and_brought_back
                what_runs_or_has_succeeded_is_not_corrected
                a_held_store_hands_out_nothing_until_it_goes_on
            }
        }
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_case_is_in_the_list() {
        let list = include_str!("conformance.rs");
        let concepts = [
            include_str!("conformance/claim.rs"),
            include_str!("conformance/enqueue.rs"),
            include_str!("conformance/gates.rs"),
            include_str!("conformance/keep.rs"),
            include_str!("conformance/lease.rs"),
            include_str!("conformance/look.rs"),
            include_str!("conformance/operate.rs"),
            include_str!("conformance/order.rs"),
            include_str!("conformance/settle.rs"),
            include_str!("conformance/steer.rs"),
            include_str!("conformance/next.rs"),
            include_str!("conformance/tied.rs"),
        ];
        for concept in concepts {
            for case in concept.lines().filter_map(|line| line.strip_prefix("pub async fn ")) {
                let name = case.split('(').next().expect("a function has a name");
                assert!(list.lines().any(|line| line.trim() == name), "{name} is run by nobody: list it");
            }
        }
    }
}
