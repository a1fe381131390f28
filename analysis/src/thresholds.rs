//! Every number that decides a verdict: its meaning, its unit, and the paper that it comes from.
//!
//! [`in_force`] puts the thresholds of a run into its summary, where reports read them. A view
//! decides nothing by a number of its own. Where a paper leaves a number open ("significantly",
//! "high"), the value here is ours, and its documentation says why.

use std::collections::BTreeMap;

use plimsoll_calls::MAX_POLL_GAP_NS;
use plimsoll_collector::profile::LONG_CALL_NS;

use crate::losses::MinLoss;

// Losses

/// Minimum severity of a loss, as a fraction of the run time (PPoPP20, 5.3).
pub const MIN_SEVERITY: f64 = 0.01;
/// Minimum length of a run, in sampling periods, for reports to say that it has no losses: with
/// fewer samples a loss can hide. Losses that show are reported for runs of any length.
pub const MIN_RUN_PERIODS: f64 = 25.0;
/// Minimum parallel efficiency of a run that is said to spend its time on work.
pub const MIN_EFFICIENCY: f64 = 0.8;
/// Minimum mean wait for a core that is oversubscription even if the job has a core for each of its
/// threads, as a fraction of the run time: other programs then use the cores. Threads beside the
/// communicating one that work for less of the run do not crowd a node: they delay it by less.
pub const MIN_RUN_DELAY_FRACTION: f64 = 0.05;
/// Minimum fraction of the time with work in which ranks wait for a core, although the job has a
/// core for each of its threads, for a note that waiting in calls contains the same.
pub const MIN_DELAYED_WORK_FRACTION: f64 = 0.2;
/// Factor on the minimum loss of communication on oversubscribed nodes: there, the latency of a
/// message includes its receiver's wait for a core.
pub const CROWDED_COMMUNICATION_FACTOR: f64 = 5.0;
/// Minimum of any loss beside oversubscription, as a fraction of the wait for cores. The kernel's
/// wait times are read between samples; their error in a single instance looks like uneven work.
pub const MIN_FRACTION_OF_RUN_DELAY: f64 = 0.05;
/// Minimum of uneven work, as a fraction of the wait time that balanced work would leave. Ranks
/// that wait often resume work slightly earlier or later than the clock shows.
pub const MIN_FRACTION_OF_RESIDUAL: f64 = 0.05;

// Load imbalance and serialization

/// Minimum share of a symptom that a cause explains (PPoPP20, 5.3.1).
pub const MIN_CAUSE_SHARE: f64 = 0.1;
/// Sum of the causes, relative to the loss, above which they partly even each other out.
pub const EVENED_OUT_FACTOR: f64 = 1.1;
/// Fraction of a context's imbalance that loops, inlined functions and callees below it must hold
/// to be named in its place (as ICS18, 4.3.2).
pub const MIN_INNER_FRACTION: f64 = 0.7;
/// Factor by which losses within subgroups must exceed the loss of whole instances to replace it:
/// sampling noise is summed over intervals and grows as intervals get shorter.
pub const SUBGROUP_FACTOR: f64 = 1.1;
/// Minimum mean length of an instance, in sampling periods, for the slow function of each single
/// instance to be known.
pub const MIN_PERIODS_PER_INSTANCE: f64 = 2.0;
/// Minimum time of a function under each of two callers, as a fraction of the larger one, for the
/// function to be a tool that both share.
pub const MIN_SHARED_FRACTION: f64 = 0.05;
/// Maximum work of the other ranks, as a fraction of the working rank's: the phase is then
/// serialized (PPoPP20, 5.1).
pub const SERIAL_FRACTION: f64 = 0.1;
/// Maximum imbalance of a cause's totals, as a fraction of the imbalance of its instances, if ranks
/// are slow in turn.
pub const TURNS_FRACTION: f64 = 0.5;
/// Minimum number of ranks that are slow in both of two losses with the same cause and symptom, as
/// a fraction of those that are slow in at least one, for both to be one loss in several phases.
pub const MIN_COMMON_SLOW_FRACTION: f64 = 0.5;
/// Minimum part of the work's imbalance that shows in each of two symptoms for them to be two
/// losses.
pub const MIN_SECOND_SYMPTOM_FRACTION: f64 = 0.1;
/// Minimum imbalance of a cause before synchronisations of subgroups, relative to the uneven wait
/// time in them, for the cause to be the loss's own.
pub const MIN_OWN_CAUSE_FRACTION: f64 = 0.5;
/// Minimum wait time in a call, as a fraction of the loss that is said to show there.
pub const MIN_SYMPTOM_FRACTION: f64 = 0.1;

// When a loss happens

/// Fraction of a loss that a short part of the run holds, if the loss is confined to that part.
pub const CONFINED_SHARE: f64 = 0.85;
/// Maximum length of that part, as a fraction of the run.
pub const MAX_CONFINED_FRACTION: f64 = 1.0 / 3.0;
/// Maximum length of the part of the run that holds nearly all of a loss, as a fraction of the run,
/// if the loss is confined to that part.
pub const MAX_SPAN_FRACTION: f64 = 0.8;
/// Minimum loss at the end of its time, as a multiple of the loss at the begin, both on a line
/// fitted to the loss, if the loss grows; losses due to uneven work are compared per useful time.
pub const MIN_GROWTH_FACTOR: f64 = 2.0;
/// Minimum slope of that line, as a multiple of its standard error: about one in a hundred steady
/// losses has a larger one by chance.
pub const MIN_GROWTH_ERRORS: f64 = 3.0;
/// Minimum loss in each third of its time, as a fraction of the largest, if the loss is steady;
/// compared as above.
pub const MIN_STEADY_FRACTION: f64 = 0.5;

// Communication, files and locks (PPoPP20, 5.3.2)

/// Fraction of the time in calls above which they are long calls rather than frequent ones, if it
/// is spent in calls of [`LONG_CALL_NS`] or more.
pub const LONG_CALLS_FRACTION: f64 = 0.5;
/// Minimum fraction of a call's time that moving its data takes for the message to be large.
/// PPoPP20 uses the derived label, which needs 70 % on all ranks; labels of functions alone
/// underestimate the transfer, since one rank polls while its partner copies.
pub const MIN_TRANSFER_FRACTION: f64 = 0.5;
/// Minimum number of calls per rank that are frequent.
pub const MIN_FREQUENT_CALLS: u64 = 10;
/// Minimum bytes per call of large messages, input and output, if no call is long.
pub const MIN_LARGE_BYTES: u64 = 64 << 10;
/// Minimum bytes of the rank that moves most in a collective, as a multiple of the mean, for the
/// uneven amounts to be what the advice is about: the others wait for that rank. Among two ranks
/// half-way between even and alone.
pub const MIN_UNEVEN_BYTES_FACTOR: f64 = 1.5;
/// Minimum part of a loss in a call for the call to be named as a further symptom.
pub const MIN_FURTHER_SYMPTOM_FRACTION: f64 = 0.05;
/// Minimum part of all work that a function holds for partners to be late in it.
pub const MIN_PARTNER_WORK_FRACTION: f64 = 0.1;
/// Maximum wait of a rank for which others wait, as a fraction of their longest wait.
pub const MAX_LATE_WAIT_FRACTION: f64 = 0.5;
/// Maximum time of the slowest rank in files, as a multiple of the mean: beyond it the time is
/// uneven work of few ranks. Among two ranks half-way between even and alone, 1.5.
pub const MAX_IO_IMBALANCE: f64 = 2.0;
/// Minimum wait for a lock of the communicating threads, as a fraction of the other threads' wait.
pub const MIN_LOCK_WAIT_FRACTION: f64 = 0.1;

// Why a cause takes longer (ours)

/// Minimum time of the slow ranks in a cause over the whole run, as a multiple of the others' time,
/// for their instructions and cycles to be compared.
pub const MIN_DIFFERENCE_TIME_FACTOR: f64 = 1.1;
/// Minimum part of the difference of two times that instructions, or cycles per instruction, must
/// explain (as a part of the logarithm of the times' ratio) for the difference to be more work, or
/// slower work.
pub const MIN_DIFFERENCE_SHARE: f64 = 0.5;

// Teams of threads (OpenMP)

/// Maximum time of a thread in one instance of a fine-grained parallel region without its begin and
/// end, which take some microseconds: mean work and waits for other threads, in nanoseconds.
pub const MAX_FINE_REGION_NS: u64 = 100_000;
/// Minimum part of the duration of fine-grained regions in which no thread works.
pub const MIN_FINE_OVERHEAD_FRACTION: f64 = 0.1;
/// Minimum part of the run in parallel regions for the work outside of them to be a loss, and for
/// idle threads to lower the parallel efficiency: a program that hardly uses threads is not meant
/// to.
pub const MIN_PARALLEL_FRACTION: f64 = 0.05;
/// Maximum mean work of a task that is fine-grained, in nanoseconds. Creating, scheduling and
/// ending a task takes about a microsecond.
pub const MAX_FINE_TASK_NS: u64 = 10_000;
/// Maximum time that each thread of a team loses by one fine-grained task beside the calls that
/// create tasks, in nanoseconds: all threads may wait for the lock of the queue of tasks.
pub const MAX_TASK_COST_NS: u64 = 3 * MAX_FINE_TASK_NS;
/// Minimum part of the idle time of a region that the cost of its fine-grained tasks explains, if
/// they are its loss.
pub const MIN_TASK_COST_FRACTION: f64 = 0.5;
/// Minimum part of a load imbalance that uneven threads of the slowest rank explain for the advice
/// to name them. With two threads they explain at most half: even threads would still have more
/// work than those of other ranks.
pub const MIN_UNEVEN_THREADS_FRACTION: f64 = 0.3;
/// Minimum part of the time by which ranks with small teams exceed the mean of all ranks that teams
/// of the largest size would save, if the size is the reason.
pub const MIN_TEAM_SIZE_FRACTION: f64 = 0.5;

// Cross-check of phases by the ranks' returns from synchronisations (ours)

/// Minimum difference between the typical returns of two ranks on one clock, as a fraction of an
/// instance, for their phases to be in doubt. A rank that counts one call more is a whole one off.
pub const MIN_APART_INSTANCE_FRACTION: f64 = 0.5;
/// Minimum of this difference in sampling periods: a rank may wait some time for a core.
pub const MIN_APART_PERIODS: f64 = 5.0;

// Process groups (PPoPP20, 5.4)

/// Maximum number of process groups in a phase that are analysed one by one.
pub const MAX_GROUPS: usize = 16;
/// Minimum fraction of a loss within a group for a loss of its own beside that between groups.
pub const MIN_WITHIN_GROUP_FRACTION: f64 = 0.1;
/// Minimum part of a loss between groups, or within one, for groups to explain it.
pub const MIN_GROUPS_EXPLAIN_FRACTION: f64 = 0.5;
/// Minimum part of a phase's work that a context takes on the ranks which have it, for it to tell
/// process groups apart.
pub const MIN_GROUP_CONTEXT_FRACTION: f64 = 0.1;
/// Minimum time of such a context, in sampling periods: with fewer, another rank may have run the
/// context without a sample.
pub const MIN_GROUP_CONTEXT_PERIODS: f64 = 10.0;
/// Minimum excess of a group's work over the mean of all ranks for groups to be unequal, as a
/// fraction of the run time (PPoPP20, 5.4, says "significantly").
pub const MIN_GROUP_EXCESS_OF_RUN: f64 = 0.01;
/// Minimum excess of a group's work over the mean of all ranks for groups to be unequal, as a
/// fraction of that mean.
pub const MIN_GROUP_EXCESS_OF_MEAN: f64 = 0.1;

// Late partners

/// Minimum fraction of the waiting in which the sender (or the receiver) is late for the loss to be
/// of that pattern.
pub const MIN_PATTERN_FRACTION: f64 = 0.5;
/// Minimum mean duration of calls that wait for late partners rather than being frequent, in
/// nanoseconds: no network takes as long for a small message. In shorter calls, partners are late
/// by the calls themselves.
pub const MIN_LATE_CALL_NS: u64 = 1_000_000;
/// Maximum time between the begins of a partner's receive and send, as a fraction of the wait for
/// them, for both to have begun together: the partner is then a late sender.
pub const MAX_SIMULTANEOUS_FRACTION: f64 = 0.05;
/// Minimum time in calls that complete messages with known partners, as a fraction of all time in
/// the calls in which a loss shows, for these partners to be the ones that ranks wait for.
pub const MIN_EXPLAINED_WAIT_FRACTION: f64 = 0.5;
/// Minimum fraction of a loss's waiting for partners that must be followed to its origin wait by
/// wait; otherwise the origin is derived from the sums over the run.
pub const MIN_FOLLOWED_FRACTION: f64 = 0.5;

// Slow places (ours)

/// Minimum time of work at a slow place, as a multiple of the time elsewhere.
pub const MIN_SLOW_FACTOR: f64 = 1.1;
/// Maximum deviation of the factor of a context or rank from that of the place, as a fraction of
/// the factor minus 1; also maximum standard deviation of the other ranks. Uneven programs differ
/// by another factor in each context.
pub const MAX_FACTOR_DEVIATION: f64 = 0.2;
/// Minimum number of functions and loops with contexts that are compared.
pub const MIN_PLACE_CONTEXTS: usize = 3;
/// Minimum part of all work in a context that is compared.
pub const MIN_PLACE_CONTEXT_FRACTION: f64 = 0.02;
/// Minimum mean time of such a context, in sampling periods: with fewer, its factor is inexact.
pub const MIN_PLACE_CONTEXT_PERIODS: f64 = 50.0;
/// Minimum part of all work in the compared contexts together.
pub const MIN_PLACE_WORK_FRACTION: f64 = 0.8;
/// Minimum part of the additional time of a single slow rank that is waiting for a core. A rank
/// with more data may take longer in all contexts alike, too.
pub const MIN_PLACE_DELAY_FRACTION: f64 = 0.7;
/// Maximum number of slow ranks that are looked at.
pub const MAX_SLOW_RANKS: usize = 4096;

// Contexts and segments (ICS18, 4.3; SC10, II)

/// Minimum part of the run of a significant context (ICS18, 4.3.2).
pub const SIGNIFICANT_FRACTION: f64 = 0.001;
/// Minimum part of an imbalance that a context holds for the imbalance to arise in it (ICS18,
/// 4.3.2).
pub const ORIGIN_FRACTION: f64 = 0.7;
/// Maximum coefficient of variation of a balanced context, relative to the root's (SC10, II-B).
pub const BALANCED_RATIO: f64 = 1.1;
/// Difference between two ranks that do the same work, as a fraction of it: processes start and are
/// scheduled at slightly different times.
pub const NOISE_FRACTION: f64 = 0.01;
/// Minimum imbalance of a segment's synchronisation, as a fraction of the sum over its contexts. If
/// the sum is far larger, the imbalances even each other out. In ICS18's segments the ratio is at
/// most 3 % where the authors call it low or modest, and 100 % where they call it high.
pub const MIN_SEGMENT_SYNC_FRACTION: f64 = 0.1;
/// Minimum difference of a context between the iterations of a cluster and all others, as a
/// fraction of the longer iteration, for the context to distinguish the cluster. Also minimum
/// difference of the slowest threads from the fastest, as a fraction of the slower ones' work.
pub const MIN_DISTINCTION_FRACTION: f64 = 0.1;
/// Maximum time of a context in some iterations, as a fraction of its time in the others, for the
/// context to be absent from them.
pub const ABSENT_FRACTION: f64 = 0.1;

// Efficiencies

/// Maximum fraction of the run in which the communicating threads wait for other threads of their
/// ranks for efficiencies, which count the work of the communicating threads, to be given.
pub const MAX_AWAITED_FRACTION: f64 = 0.5;

// Samples of ranks (Fowler's slides: adaptive sampling; Cochran)

/// Minimum mean of a metric that decides the number of sampled ranks, as a fraction of the run or
/// of the window: smaller ones do not matter to a reader, and vary most.
pub const MIN_SAMPLED_METRIC_FRACTION: f64 = 0.05;
/// Maximum skewness of an estimated mean for intervals of Student's t to hold. Cochran (2.15) asks
/// for n > 25 G1^2 (a skewness of 1/5) so that 95 % intervals fail in at most 6 % of the samples;
/// 1/7 halves what is lost.
pub const MAX_ESTIMATE_SKEWNESS: f64 = 1.0 / 7.0;
/// Minimum effective degrees of freedom of an estimated mean for intervals of Student's t to hold
/// for all distributions: the textbooks' 30. With 3, 90 % intervals of uniformly distributed
/// values hold in 88 % of the samples; with 13, 95 % intervals of two kinds of ranks in 94 %.
pub const MIN_ESTIMATE_DEGREES: f64 = 30.0;
/// Minimum half-width of an interval, as a fraction of the requested error, unless all ranks are
/// sampled: a few ranks may be equal by chance.
pub const MIN_INTERVAL_FRACTION: f64 = 1.0 / 3.0;
/// Minimum length of a window, in sampling periods: in shorter ones the sampling error hides how
/// much ranks differ.
pub const MIN_SAMPLED_WINDOW_PERIODS: u64 = 250;
/// Maximum number of windows. The slides leave their length open; more windows than this would be
/// shorter than the iterations of many programs.
pub const MAX_SAMPLED_WINDOWS: u64 = 16;

/// Minimum part of the time in a loss's calls that is wait time which is uneven within windows of
/// the run and even over the run, for ranks to be slow from time to time. In calls that cost all
/// ranks the same it is none.
pub const MIN_MOVING_WAIT_FRACTION: f64 = 0.5;
/// Minimum part of the work around these calls in one callee for it to be the cause.
pub const MIN_MOVING_WORK_FRACTION: f64 = 0.5;

/// Returns the thresholds that decided the verdicts of a run, by name. Fractions and factors have
/// no unit; `_ns`, `_s` and `_bytes` stand in the names.
pub fn in_force(min_loss: MinLoss) -> BTreeMap<String, f64> {
    [
        ("min_severity", MIN_SEVERITY),
        ("min_loss_s", min_loss.seconds),
        ("min_communication_loss_s", min_loss.communication_s),
        ("min_run_periods", MIN_RUN_PERIODS),
        ("min_efficiency", MIN_EFFICIENCY),
        ("min_run_delay_fraction", MIN_RUN_DELAY_FRACTION),
        ("min_delayed_work_fraction", MIN_DELAYED_WORK_FRACTION),
        ("crowded_communication_factor", CROWDED_COMMUNICATION_FACTOR),
        ("min_fraction_of_run_delay", MIN_FRACTION_OF_RUN_DELAY),
        ("min_fraction_of_residual", MIN_FRACTION_OF_RESIDUAL),
        ("min_cause_share", MIN_CAUSE_SHARE),
        ("evened_out_factor", EVENED_OUT_FACTOR),
        ("min_inner_fraction", MIN_INNER_FRACTION),
        ("max_awaited_fraction", MAX_AWAITED_FRACTION),
        ("subgroup_factor", SUBGROUP_FACTOR),
        ("min_periods_per_instance", MIN_PERIODS_PER_INSTANCE),
        ("min_shared_fraction", MIN_SHARED_FRACTION),
        ("serial_fraction", SERIAL_FRACTION),
        ("turns_fraction", TURNS_FRACTION),
        ("min_common_slow_fraction", MIN_COMMON_SLOW_FRACTION),
        ("min_second_symptom_fraction", MIN_SECOND_SYMPTOM_FRACTION),
        ("min_own_cause_fraction", MIN_OWN_CAUSE_FRACTION),
        ("min_symptom_fraction", MIN_SYMPTOM_FRACTION),
        ("confined_share", CONFINED_SHARE),
        ("max_confined_fraction", MAX_CONFINED_FRACTION),
        ("max_span_fraction", MAX_SPAN_FRACTION),
        ("min_growth_factor", MIN_GROWTH_FACTOR),
        ("min_growth_errors", MIN_GROWTH_ERRORS),
        ("min_steady_fraction", MIN_STEADY_FRACTION),
        ("long_call_ns", LONG_CALL_NS as f64),
        ("long_calls_fraction", LONG_CALLS_FRACTION),
        ("min_transfer_fraction", MIN_TRANSFER_FRACTION),
        ("max_poll_gap_ns", MAX_POLL_GAP_NS as f64),
        ("min_frequent_calls", MIN_FREQUENT_CALLS as f64),
        ("min_large_bytes", MIN_LARGE_BYTES as f64),
        ("min_uneven_bytes_factor", MIN_UNEVEN_BYTES_FACTOR),
        ("min_further_symptom_fraction", MIN_FURTHER_SYMPTOM_FRACTION),
        ("min_partner_work_fraction", MIN_PARTNER_WORK_FRACTION),
        ("max_late_wait_fraction", MAX_LATE_WAIT_FRACTION),
        ("max_io_imbalance", MAX_IO_IMBALANCE),
        ("min_lock_wait_fraction", MIN_LOCK_WAIT_FRACTION),
        ("min_difference_time_factor", MIN_DIFFERENCE_TIME_FACTOR),
        ("min_difference_share", MIN_DIFFERENCE_SHARE),
        ("max_fine_region_ns", MAX_FINE_REGION_NS as f64),
        ("min_fine_overhead_fraction", MIN_FINE_OVERHEAD_FRACTION),
        ("min_parallel_fraction", MIN_PARALLEL_FRACTION),
        ("max_fine_task_ns", MAX_FINE_TASK_NS as f64),
        ("max_task_cost_ns", MAX_TASK_COST_NS as f64),
        ("min_task_cost_fraction", MIN_TASK_COST_FRACTION),
        ("min_uneven_threads_fraction", MIN_UNEVEN_THREADS_FRACTION),
        ("min_team_size_fraction", MIN_TEAM_SIZE_FRACTION),
        ("min_apart_instance_fraction", MIN_APART_INSTANCE_FRACTION),
        ("min_apart_periods", MIN_APART_PERIODS),
        ("max_groups", MAX_GROUPS as f64),
        ("min_within_group_fraction", MIN_WITHIN_GROUP_FRACTION),
        ("min_groups_explain_fraction", MIN_GROUPS_EXPLAIN_FRACTION),
        ("min_group_context_fraction", MIN_GROUP_CONTEXT_FRACTION),
        ("min_group_context_periods", MIN_GROUP_CONTEXT_PERIODS),
        ("min_group_excess_of_run", MIN_GROUP_EXCESS_OF_RUN),
        ("min_group_excess_of_mean", MIN_GROUP_EXCESS_OF_MEAN),
        ("min_pattern_fraction", MIN_PATTERN_FRACTION),
        ("min_late_call_ns", MIN_LATE_CALL_NS as f64),
        ("max_simultaneous_fraction", MAX_SIMULTANEOUS_FRACTION),
        ("min_moving_wait_fraction", MIN_MOVING_WAIT_FRACTION),
        ("min_moving_work_fraction", MIN_MOVING_WORK_FRACTION),
        ("min_explained_wait_fraction", MIN_EXPLAINED_WAIT_FRACTION),
        ("min_followed_fraction", MIN_FOLLOWED_FRACTION),
        ("min_slow_factor", MIN_SLOW_FACTOR),
        ("max_factor_deviation", MAX_FACTOR_DEVIATION),
        ("min_place_contexts", MIN_PLACE_CONTEXTS as f64),
        ("min_place_context_fraction", MIN_PLACE_CONTEXT_FRACTION),
        ("min_place_context_periods", MIN_PLACE_CONTEXT_PERIODS),
        ("min_place_work_fraction", MIN_PLACE_WORK_FRACTION),
        ("min_place_delay_fraction", MIN_PLACE_DELAY_FRACTION),
        ("max_slow_ranks", MAX_SLOW_RANKS as f64),
        ("significant_fraction", SIGNIFICANT_FRACTION),
        ("origin_fraction", ORIGIN_FRACTION),
        ("balanced_ratio", BALANCED_RATIO),
        ("noise_fraction", NOISE_FRACTION),
        ("min_segment_sync_fraction", MIN_SEGMENT_SYNC_FRACTION),
        ("min_distinction_fraction", MIN_DISTINCTION_FRACTION),
        ("absent_fraction", ABSENT_FRACTION),
        ("min_sampled_metric_fraction", MIN_SAMPLED_METRIC_FRACTION),
        ("max_estimate_skewness", MAX_ESTIMATE_SKEWNESS),
        ("min_estimate_degrees", MIN_ESTIMATE_DEGREES),
        ("min_interval_fraction", MIN_INTERVAL_FRACTION),
        ("min_sampled_window_periods", MIN_SAMPLED_WINDOW_PERIODS as f64),
        ("max_sampled_windows", MAX_SAMPLED_WINDOWS as f64),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A constant of this file that the summary lacks would decide without a trace.
    #[test]
    fn summary_carries_every_threshold() {
        let in_force = in_force(MinLoss { seconds: 1.0, communication_s: 5.0 });
        let source = include_str!("thresholds.rs");
        let constants = source.lines().filter_map(|line| line.strip_prefix("pub const "));
        let names: Vec<String> =
            constants.filter_map(|line| line.split(':').next()).map(str::to_lowercase).collect();
        assert!(names.len() > 30, "{names:?}");
        for name in names {
            assert!(in_force.contains_key(&name), "{name} is not in the summary");
        }
    }
}
