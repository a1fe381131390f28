//! Advice: describes a loss and a remedy in one or two sentences.

mod team_advice;

use std::collections::BTreeSet;

use plimsoll_calls::{call, id_of};
use plimsoll_collector::profile::{Frame, FrameKind, NodeId};

use crate::awaited_threads;
use crate::finding::Finding;
use crate::frame_classes::{is_part, is_system, is_unnamed};
use crate::job_totals::Host;
use crate::losses::is_one_at_a_time;
use crate::metrics::NS_PER_S;
use crate::order_in_time::may_wait_for_lock;
use crate::owners::function_around;
use crate::partner_work::{is_one_of, names_partner};
use crate::phrase::TIED;
use crate::phrase::{self, bytes, count, counted, frame_with_place, percent, seconds};
use crate::ranks::RankSet;
use crate::summary::LossKind;
use crate::summary_tree::shown_frame;
use crate::thresholds::MIN_PATTERN_FRACTION;
use crate::totals::{CallTotals, Totals};

/// Input of a sentence about a loss.
pub struct AdviceInput<'a> {
    /// The loss.
    pub finding: &'a Finding,
    /// Slow ranks of the loss.
    pub slow: &'a RankSet,
    /// Waiting ranks of the loss.
    pub waiting: &'a RankSet,
    /// Mean and maximum over ranks of the time in the first cause, in seconds.
    pub cause_s: (f64, f64),
    /// Fraction of the waiting for partners in which both ends of a message had begun.
    pub transfer: f64,
}

/// Returns the advice for a loss.
pub fn advice(totals: &Totals, facts: &AdviceInput<'_>) -> String {
    let advice = match facts.finding.kind {
        LossKind::Oversubscription => crowded(totals, facts),
        LossKind::Serialization => serial(totals, facts),
        LossKind::LoadImbalance => uneven(totals, facts),
        LossKind::GroupImbalance => unequal_groups(totals, facts),
        LossKind::FrequentCommunication => frequent(totals, facts),
        LossKind::WaitForPartner => late_partner(totals, facts),
        LossKind::LargeMessage => large_message(totals, facts),
        LossKind::LargeIo => large_io(totals, facts),
        LossKind::LockContention => locked(totals, facts),
        LossKind::SlowNode | LossKind::SlowCore => slow_place(totals, facts),
        LossKind::ThreadImbalance => team_advice::uneven_threads(totals, facts),
        LossKind::SerialSection => team_advice::serial_section(totals, facts),
        LossKind::FineGrainedRegions => team_advice::short_regions(totals, facts),
        LossKind::FineGrainedTasks => team_advice::short_tasks(totals, facts),
    };
    capitalised(advice.replace(TIED, " "))
}

/// Capitalises a sentence, unless it begins with a name.
fn capitalised(sentence: String) -> String {
    let words = ["the loop ", "rank ", "ranks "];
    match sentence.chars().next() {
        Some(first) if words.iter().any(|word| sentence.starts_with(word)) => {
            format!("{}{}", first.to_ascii_uppercase(), &sentence[1..])
        }
        _ => sentence,
    }
}

fn unequal_groups(totals: &Totals, facts: &AdviceInput<'_>) -> String {
    let Some(task) = facts.finding.causes.first() else { return String::new() };
    // A task with a single rank can give none away.
    let fewer = if facts.waiting.len() > 1 { " and the others fewer" } else { "" };
    format!(
        "{} a task of {} own, {}, which takes {} on the slowest rank, {}. Give this task more \
         ranks{fewer}, or move work from it to the others.",
        ranks(facts.slow, "has", "have"),
        plural(facts.slow.len(), "its", "their"),
        worker(totals, task.node),
        seconds(facts.cause_s.1),
        waiters(totals, facts),
    )
}

/// Returns the clause about the ranks that wait for the slow ranks, to end a sentence about the
/// slow ranks.
fn waiters(totals: &Totals, facts: &AdviceInput<'_>) -> String {
    let symptom = spoken(totals, facts.finding.symptom);
    if facts.slow == facts.waiting {
        let verb = plural(facts.slow.len(), "waits itself", "wait themselves");
        return format!("and {verb} in {symptom} at other times");
    }
    // At other times, a slow rank may wait as well.
    let others: RankSet = facts.waiting.iter().filter(|it| !facts.slow.contains(*it)).collect();
    let waiting = if others.is_empty() { facts.waiting } else { &others };
    format!(
        "and {} for {} in {symptom}",
        ranks(waiting, "waits", "wait"),
        plural(facts.slow.len(), "it", "them"),
    )
}

fn frequent(totals: &Totals, facts: &AdviceInput<'_>) -> String {
    let advice = frequent_calls(totals, facts);
    // The loss that would remain with a core for each rank is unknown. A file is no partner.
    match totals.job.crowding() > 1.0 && !is_io(name(totals, facts.finding.symptom)) {
        true => format!(
            "{advice} But ranks share cores here, and a partner without a core sends late: first \
             measure with a core for each rank."
        ),
        false => advice,
    }
}

fn frequent_calls(totals: &Totals, facts: &AdviceInput<'_>) -> String {
    let it = Calls::of(totals, facts.finding);
    let each = seconds(it.time_s / it.calls.max(1) as f64);
    let waiting = if it.lacks_waits { " without the waiting for uneven work" } else { "" };
    let often = format!(
        "{} makes {} calls of {} {}, {each} each{waiting}",
        place(totals, facts.finding),
        count(it.calls),
        it.names,
        on_ranks(totals, facts),
    );
    let symptom = name(totals, facts.finding.symptom);
    if is_one_of(symptom, &POLLS) {
        return format!(
            "{often}: it looks again and again whether something has come. Wait in a blocking call \
             (MPI_Wait, MPI_Waitany, MPI_Probe), or look less often and work in between."
        );
    }
    if may_wait_for_lock(&totals.tree.contexts, facts.finding.symptom) {
        return format!("{often}: {LOCKED_WINDOW}");
    }
    if is_one_of(symptom, &COMPLETE_ACCESSES) {
        return format!("{often}: {COMPLETED_ACCESSES}");
    }
    if is_one_of(symptom, &CREATE_COMMUNICATORS) {
        return format!(
            "{often}. Create the communicator once, before the loop, and use it in each iteration."
        );
    }
    if is_io(symptom) {
        return format!(
            "{often}. Read or write larger pieces: collect them in memory, and hand \
             many over at once."
        );
    }
    let work_s = work_in_cause_ns(totals, facts.finding) as f64 / NS_PER_S;
    let work = match work_s > it.time_s {
        true => format!(", beside {} of work", seconds(work_s / it.calls.max(1) as f64)),
        false => ": there is little work between them".to_owned(),
    };
    format!(
        "{often}{work}. Call less often: do more in each iteration, and send what belongs together \
         in one message."
    )
}

/// Returns the work of all ranks in the first cause of a loss, on all call paths, in nanoseconds.
fn work_in_cause_ns(totals: &Totals, finding: &Finding) -> u128 {
    let frame = |node: NodeId| totals.tree.contexts.nodes[node as usize].frame;
    let Some(cause) = finding.causes.first().map(|cause| frame(cause.node)) else { return 0 };
    let nodes = finding.phases(totals).into_iter().flat_map(|phase| &phase.nodes);
    nodes.filter(|(node, _)| frame(**node) == cause).map(|(_, work)| work.inclusive.sum).sum()
}

/// Returns whether a frequent call is one on files.
fn is_io(call: &str) -> bool {
    !call.contains("MPI_") || call.contains("MPI_File")
}

/// Returns which ranks make the calls in which a loss shows: `in all ranks`, `on rank 0`; `in
/// total` if some ranks make none.
fn on_ranks(totals: &Totals, facts: &AdviceInput<'_>) -> String {
    // Several contexts may lie on different ranks.
    let is_alone = facts.finding.also_in.is_empty() && facts.waiting.len() == 1;
    match callers(totals, facts) {
        1 if is_alone => format!("on {}", named(facts.waiting)),
        some if some < totals.job.ranks.len() => "in total".to_owned(),
        _ => "in all ranks".to_owned(),
    }
}

/// Returns the number of ranks that make the calls in which a loss shows: a lower bound, if several
/// contexts lie on different ranks.
fn callers(totals: &Totals, facts: &AdviceInput<'_>) -> u32 {
    let nodes = facts.finding.shown_in();
    nodes.map(|node| totals.nodes[node as usize].inclusive.ranks).max().unwrap_or(0)
}

/// Calls that look whether something has come.
const POLLS: [&str; 4] = ["MPI_Test", "MPI_Iprobe", "MPI_Improbe", "MPI_Request_get_status"];
/// Calls that create communicators.
const CREATE_COMMUNICATORS: [&str; 10] = [
    "MPI_Comm_dup",
    "MPI_Comm_idup",
    "MPI_Comm_split",
    "MPI_Comm_create",
    "MPI_Cart_create",
    "MPI_Cart_sub",
    "MPI_Graph_create",
    "MPI_Dist_graph_create",
    "MPI_Intercomm_create",
    "MPI_Intercomm_merge",
];

/// Explanation and advice for calls in which ranks wait for the lock of a window.
const LOCKED_WINDOW: &str = "a rank waits there while another one holds the window's lock, and \
    for its own accesses. Hold the lock for less, share it (MPI_LOCK_SHARED), update by single \
    operations (MPI_Accumulate, MPI_Fetch_and_op), or divide the window.";

/// Calls that complete accesses to a window that all ranks share.
const COMPLETE_ACCESSES: [&str; 2] = ["MPI_Win_flush", "MPI_Win_unlock_all"];

/// Explanation and advice for [`COMPLETE_ACCESSES`].
const COMPLETED_ACCESSES: &str = "a rank waits there until its accesses to a window are complete, \
    for which their target may have to call MPI. Complete several accesses by one call, work \
    between the access and this call, or let a thread of MPI make progress on the targets.";

/// Minimum excess of the slowest rank's work in a phase over the mean, as a fraction of the wait
/// for partners or, if that is less, of the mean work, at which more even work might shorten the
/// wait.
const MIN_UNEVEN_WORK_FRACTION: f64 = 0.25;

fn late_partner(totals: &Totals, facts: &AdviceInput<'_>) -> String {
    // Other ranks wait in the synchronisation that ends a pipeline.
    let phase = totals.sums.phases.get(&facts.finding.phase);
    let ending = phase.and_then(|phase| phase.ends_in);
    let calls: Vec<NodeId> =
        facts.finding.shown_in().filter(|call| Some(*call) != ending).collect();
    let calls = call_names(totals, &calls);
    let waiters = ranks(facts.waiting, "waits", "wait");
    let symptom = facts.finding.symptom;
    if may_wait_for_lock(&totals.tree.contexts, symptom) {
        return match facts.finding.causes.first() {
            Some(cause) if facts.finding.under_window_lock => format!(
                "In {calls}, {waiters} for the window's lock, which another rank holds while it \
                 executes {}. Move this work out of the part between MPI_Win_lock and \
                 MPI_Win_unlock, share the lock (MPI_LOCK_SHARED), or divide the window.",
                name(totals, cause.node),
            ),
            _ => format!("In {calls}, {waiters}: {LOCKED_WINDOW}"),
        };
    }
    let completes_accesses = is_one_of(name(totals, symptom), &COMPLETE_ACCESSES);
    if completes_accesses && facts.finding.causes.is_empty() {
        return format!("In {calls}, {waiters}: {COMPLETED_ACCESSES}");
    }
    let wait = format!("In {calls}, {waiters} for");
    if facts.transfer >= MIN_PATTERN_FRACTION {
        return format!(
            "In {calls}, {waiters} although no partner is late: {} of that time passes after both \
             ends of a message have begun. Either the transfer takes as long, or a rank is not on \
             its core meanwhile. Send less often and more at a time; check the binding of ranks to \
             cores and what else runs there.",
            percent(facts.transfer),
        );
    }
    let all_ranks = totals.job.ranks.len();
    let (excess_s, mean_s) = phase.map_or((0.0, 0.0), |it| {
        (it.work.imbalance(all_ranks) / NS_PER_S, it.work.mean(all_ranks) / NS_PER_S)
    });
    let is_even = excess_s < MIN_UNEVEN_WORK_FRACTION * facts.finding.own_s().min(mean_s);
    let is_alone = phase.is_some_and(|it| is_one_at_a_time(it, facts.finding, all_ranks));
    let in_turn = match (is_even, is_alone) {
        (true, true) => {
            " In total all ranks work equally long, but one after the other: only one rank at a \
             time is in it."
        }
        (true, false) => {
            " In total all ranks work equally long: they work after each other, or each time \
             another rank is slow."
        }
        (false, _) => "",
    };
    let Some(cause) = facts.finding.causes.first() else {
        let slow = &facts.finding.slow_ranks;
        let (partners, reason, in_turn) = match slow.is_empty() {
            true => (
                "partners".to_owned(),
                "no function takes longer on a rank that waits less. Partners may also be \
                 processes outside of the job",
                "",
            ),
            false => {
                (named(slow), "no function takes much longer there than on other ranks", in_turn)
            }
        };
        return format!(
            "{wait} {partners}; the cause is not known, because {reason}.{in_turn} See what the \
             partners do before they make this call."
        );
    };
    let work = worker(totals, cause.node);
    // Ranks that are known by their work, not by messages.
    if !facts.finding.slow.is_empty() {
        let (verb, doubt) = match facts.finding.causes.len() {
            1 => (plural(facts.slow.len(), "is still", "are still"), ""),
            _ => ("may be", " Each of the causes may be the one, as no message shows which."),
        };
        let remedy = match completes_accesses {
            true => {
                "An access may not be complete before its target calls MPI: call it within this \
                 work, such as MPI_Iprobe, or let a thread of MPI make progress there."
            }
            false => {
                "Distribute this work, do it after the call, or begin the call as a nonblocking \
                 one and work meanwhile."
            }
        };
        return format!(
            "{wait} {}, which {verb} in {work} ({:.3} s).{doubt} {remedy}",
            named(facts.slow),
            facts.cause_s.1,
        );
    }
    format!(
        "{wait} partners that are still in {work}.{in_turn} Let a rank begin with what it has \
         (smaller blocks, another order), or receive by nonblocking calls and work meanwhile."
    )
}

fn large_message(totals: &Totals, facts: &AdviceInput<'_>) -> String {
    let it = Calls::of(totals, facts.finding);
    let phase = totals.sums.phases.get(&facts.finding.phase);
    if let Some(phase) = phase.filter(|_| !facts.slow.is_empty()) {
        return uneven_data(totals, facts, &phase.sync);
    }
    // A collective has a nonblocking form of its own.
    let symptom = facts.finding.symptom;
    let nonblocking = name(totals, symptom)
        .split_once("MPI_")
        .map(|(_, operation)| format!("MPI_I{}", operation.to_lowercase()))
        .filter(|form| !names_partner(totals, symptom) && call(id_of(form)).is_some());
    format!(
        "{} move {} each, which takes {}. Send less: only what has changed, only to ranks that \
         need it, or numbers of fewer bytes; or send while the ranks compute, by {}.",
        calls_in_place(totals, facts.finding, &it),
        bytes(it.moved / it.calls.max(1)),
        seconds(it.time_s / it.calls.max(1) as f64),
        nonblocking.as_deref().unwrap_or("MPI_Isend and MPI_Irecv"),
    )
}

/// Returns the advice on a synchronisation in which the slow ranks move most of the data.
fn uneven_data(totals: &Totals, facts: &AdviceInput<'_>, sync: &CallTotals) -> String {
    let it = Calls::of(totals, facts.finding);
    let per_rank = (sync.calls / u64::from(sync.time.ranks.max(1))).max(1);
    format!(
        "{} take {} each, as long as {} {}, which {} the most data: up to {} each time, {:.1} \
         times the mean. Divide the data so that each rank exchanges about as much, or exchange \
         less.",
        calls_in_place(totals, facts.finding, &it),
        seconds(it.time_s / it.calls.max(1) as f64),
        named(facts.slow),
        plural(facts.slow.len(), "needs", "need"),
        plural(facts.slow.len(), "moves", "move"),
        bytes(sync.most_bytes / per_rank),
        sync.uneven_bytes_factor(),
    )
}

/// Minimum time of the slowest rank in a call, as a multiple of the mean, at which advice names the
/// ranks that take long.
const MIN_UNEVEN_FACTOR: f64 = 1.5;

fn large_io(totals: &Totals, facts: &AdviceInput<'_>) -> String {
    let it = Calls::of(totals, facts.finding);
    let much = match it.moved {
        0 => String::new(),
        moved => {
            let per_s = moved as f64 / it.time_s.max(1e-9);
            format!(", {} in all ranks, {} a second in each", bytes(moved), bytes(per_s as u64))
        }
    };
    let (ranks, symptom) = (totals.job.ranks.len(), facts.finding.symptom);
    let mean = seconds(it.time_s / f64::from(ranks));
    let phase = totals.sums.phases.get(&facts.finding.phase);
    // The slowest rank may only wait longest for uneven work.
    let call = phase.filter(|_| !it.lacks_waits).and_then(|phase| phase.wait(symptom));
    let slowest =
        call.filter(|call| call.time.max as f64 >= MIN_UNEVEN_FACTOR * call.time.mean(ranks));
    let time = match slowest {
        Some(_) if facts.waiting.is_empty() => format!("{mean} on each rank on average"),
        Some(_) => {
            let phases = facts.finding.phases(totals).into_iter();
            let calls = phases.filter_map(|phase| phase.wait(symptom));
            let most_ns: u64 = calls.map(|call| call.time.max).sum();
            // The slowest ranks of the phases may differ.
            let most_ns = most_ns.min(totals.nodes[symptom as usize].inclusive.max);
            let most = seconds(most_ns as f64 / NS_PER_S);
            format!("{mean} on each rank on average, {most} on {}", named(facts.waiting))
        }
        None => format!("{mean} on each rank"),
    };
    let call = name(totals, symptom);
    let is_collective = ["_all", "_ordered", "_open"].iter().any(|it| call.contains(it));
    let share = match call.contains("MPI_File") && is_collective {
        true => "",
        false => "let ranks share a file by collective calls of MPI-IO; ",
    };
    let less = match call.contains("open") {
        true => "Open files less often, or fewer of them",
        false => "Read or write less, or less often",
    };
    format!(
        "{} take {time}{much}. {less}; {share}or leave it to a thread while the others compute.",
        calls_in_place(totals, facts.finding, &it),
    )
}

fn locked(totals: &Totals, facts: &AdviceInput<'_>) -> String {
    let it = Calls::of(totals, facts.finding);
    format!(
        "Threads that run side by side wait {} each, on average, for locks that {} takes ({}): \
         while one holds a lock, the others stand still. Do less while it is held, give each part \
         of the data a lock of its own, or let each thread work on a copy.",
        seconds(facts.finding.seconds),
        place(totals, facts.finding),
        it.names,
    )
}

/// All calls in which a loss shows, with their sums over ranks.
struct Calls {
    names: String,
    calls: u64,
    moved: u64,
    /// Time in the calls, without the waiting for uneven work in a call that ends a phase.
    time_s: f64,
    /// Whether the calls have waited for uneven work besides.
    lacks_waits: bool,
}

impl Calls {
    fn of(totals: &Totals, finding: &Finding) -> Self {
        let nodes: Vec<NodeId> = finding.shown_in().collect();
        let phases = finding.phases(totals);
        let is_ending =
            phases.iter().any(|phase| phase.ends_in.is_some_and(|it| nodes.contains(&it)));
        let of_phase =
            phases.iter().flat_map(|phase| nodes.iter().filter_map(|it| phase.wait(*it)));
        let (calls, moved, ns) = of_phase.fold((0, 0, 0), |(calls, moved, ns), call| {
            (calls + call.calls, moved + call.moved, ns + call.time.sum)
        });
        let measured_s = ns as f64 / NS_PER_S;
        let lost_s = finding.seconds * f64::from(totals.job.ranks.len());
        let lacks_waits = is_ending && lost_s < measured_s;
        let time_s = if lacks_waits { lost_s } else { measured_s };
        Self { names: call_names(totals, &nodes), calls, moved, time_s, lacks_waits }
    }
}

/// Returns the names of calls, each once.
fn call_names(totals: &Totals, calls: &[NodeId]) -> String {
    if let [one] = calls {
        return spoken(totals, *one);
    }
    let mut names: Vec<&str> = Vec::new();
    for name in calls.iter().map(|call| name(totals, *call)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    listed(&names)
}

/// Returns `a, b and c`; only the first few names of a long list.
pub fn listed(names: &[&str]) -> String {
    const NAMED: usize = 4;
    match names {
        [] => "an unknown call".to_owned(),
        [one] => (*one).to_owned(),
        [first @ .., last] if names.len() <= NAMED => format!("{} and {last}", first.join(", ")),
        _ => format!("{} and others", names[..NAMED].join(", ")),
    }
}

/// Returns the first cause with its source location: `the loop at x.c:12 in solve`.
fn place(totals: &Totals, finding: &Finding) -> String {
    finding.causes.first().map_or_else(
        || "the program".to_owned(),
        |cause| {
            let contexts = &totals.tree.contexts;
            let frame = &contexts.frames[contexts.nodes[cause.node as usize].frame as usize];
            frame_with_place(&shown_frame(frame))
        },
    )
}

fn calls_in_place(totals: &Totals, finding: &Finding, calls: &Calls) -> String {
    format!("The calls of {} in {}", calls.names, place(totals, finding))
}

fn uneven(totals: &Totals, facts: &AdviceInput<'_>) -> String {
    let Some(cause) = facts.finding.causes.first() else { return String::new() };
    let name = worker(totals, cause.node);
    let (mean_s, max_s) = facts.cause_s;
    if facts.finding.by_turns {
        return format!(
            "{}, but each time another rank is slow in it and the others wait in {}. Even out each \
             step's work, or synchronise less often so that the ranks can catch up.",
            equal_in_total(totals, facts, cause.node),
            spoken(totals, facts.finding.symptom),
        );
    }
    let others = match facts.finding.causes.len() {
        1 => "",
        _ if facts.finding.evened_out => {
            " Further causes lie on other ranks and partly even it out."
        }
        _ => " Further causes add to it.",
    };
    let threads = team_advice::smaller_teams_of_ranks(totals, facts)
        .or_else(|| team_advice::uneven_threads_of_rank(totals, facts.finding));
    let work = match others {
        "" => "its work".to_owned(),
        _ => format!("the work of {}", spoken(totals, cause.node)),
    };
    format!(
        "{name} takes {max_s:.3} s on the slowest rank and {mean_s:.3} s on average; {} slow in \
         it, {}.{others} {}",
        ranks(facts.slow, "is", "are"),
        waiters(totals, facts),
        threads.unwrap_or_else(|| format!("Distribute {work} more evenly.")),
    )
}

/// Returns the clause that no rank is slower in a cause over the whole run, to begin a sentence.
fn equal_in_total(totals: &Totals, facts: &AdviceInput<'_>, cause: NodeId) -> String {
    format!(
        "{} takes about the same time on every rank in total ({:.3} s on average)",
        worker(totals, cause),
        facts.cause_s.0,
    )
}

fn serial(totals: &Totals, facts: &AdviceInput<'_>) -> String {
    let Some(cause) = facts.finding.causes.first() else { return String::new() };
    if facts.finding.by_turns {
        return format!(
            "{}, but only one rank at a time is in it and all others wait in {}. Let the ranks do \
             this work side by side, without a synchronisation after each of them.",
            equal_in_total(totals, facts, cause.node),
            spoken(totals, facts.finding.symptom),
        );
    }
    format!(
        "Only {} in {} for {:.3} s; all others wait for it in {}. Distribute this work over the \
         ranks, or overlap it with work that does not depend on it.",
        ranks(facts.slow, "is", "are"),
        worker(totals, cause.node),
        facts.cause_s.1,
        spoken(totals, facts.finding.symptom),
    )
}

fn slow_place(totals: &Totals, facts: &AdviceInput<'_>) -> String {
    let Some(place) = &facts.finding.place else { return String::new() };
    let (where_, remedy) = match facts.finding.kind {
        LossKind::SlowNode => (
            format!("on node {} ({})", place.host, named(facts.slow)),
            "Check its clock rate, temperature and memory and what else runs there, or run the \
             job on another node.",
        ),
        _ => (
            format!("for {} on node {}", named(facts.slow), place.host),
            "Check what else runs on its core, and to which cores ranks are bound.",
        ),
    };
    format!(
        "All work takes {:.2} times as long {where_} as elsewhere, alike in all contexts, and the \
         others wait for it in {}: the machine is slow there, the program is not uneven. {remedy}",
        place.factor,
        spoken(totals, facts.finding.symptom),
    )
}

/// Returns the ranks by their numbers: `rank 3`, `ranks 0-2`.
pub fn named(set: &RankSet) -> String {
    phrase::ranks(&set.to_string(), u32::MAX)
}

fn crowded(totals: &Totals, facts: &AdviceInput<'_>) -> String {
    let symptom = facts.finding.symptom;
    let delayed =
        totals.sums.phases.get(&facts.finding.phase).and_then(|it| it.nodes.get(&symptom));
    let part_s = delayed.map_or(0.0, |it| it.run_delay.mean(totals.job.ranks.len()) / NS_PER_S);
    let place = spoken(totals, symptom);
    let part = match 2.0 * part_s > facts.finding.seconds {
        true => format!("most of it in {place}"),
        false => format!("the largest part in {place} ({})", seconds(part_s)),
    };
    let wait = format!("They waited {:.3} s each for a core, {part}.", facts.finding.seconds);
    let elapsed_ns = totals.job.elapsed_ns;
    let load = |host: &Host| host.load(elapsed_ns).unwrap_or(0.0);
    let crowded = totals.job.hosts.iter().filter(|(_, host)| load(host) > 1.0);
    match crowded.max_by(|(_, a), (_, b)| load(a).total_cmp(&load(b))) {
        Some((host, at)) => format!(
            "{} with {} {} {} on {host}. {wait}{} Start fewer ranks or threads on a \
             node, or give the job more cores.",
            counted(at.ranks.len().into(), "rank"),
            counted(at.busy_threads(elapsed_ns).ceil() as u64, "busy thread"),
            plural(at.ranks.len(), "shares", "share"),
            counted(at.cores.len() as u64, "core"),
            waiting_for_turns(totals, "with a core for each rank"),
        ),
        _ => format!(
            "The ranks have cores enough, but others use them too or several ranks are bound to \
             the same one. {wait}{} Check the binding of ranks to cores and what else runs there.",
            waiting_for_turns(totals, "without other programs on the cores"),
        ),
    }
}

/// Minimum fraction of the run in calls at which advice about shared cores mentions communication.
const MIN_CALLS_FRACTION: f64 = 0.2;

/// Returns the remark about communication on ranks that share cores, with each other or with other
/// programs: `shown` is the situation in which its own time shows. Empty if calls take little time.
fn waiting_for_turns(totals: &Totals, shown: &str) -> String {
    let job = &totals.job;
    let called_s = (job.elapsed_ns as f64 - job.useful.mean(job.ranks.len())) / NS_PER_S;
    if called_s < MIN_CALLS_FRACTION * job.elapsed_ns as f64 / NS_PER_S {
        return String::new();
    }
    format!(
        " Besides, they spent {called_s:.2} s each in calls, where they also wait until a partner \
         has its turn: how much of that is the program's own shows only {shown}."
    )
}

fn plural(count: u32, one: &'static str, many: &'static str) -> &'static str {
    if count == 1 { one } else { many }
}

/// Returns the ranks with their verb: `rank 3 is`, `ranks 0-2 are`.
fn ranks(set: &RankSet, one: &str, many: &str) -> String {
    let list = phrase::ranks(&set.to_string(), u32::MAX);
    match set.len() {
        1 => format!("{list} {one}"),
        _ => format!("{list} {many}"),
    }
}

/// Returns a context as part of a sentence: a function by its name, a loop or an MPI call with its
/// location.
fn spoken(totals: &Totals, node: NodeId) -> String {
    let contexts = &totals.tree.contexts;
    let frame = &contexts.frames[contexts.nodes[node as usize].frame as usize];
    match frame.kind {
        FrameKind::Loop | FrameKind::Mpi => frame_with_place(&shown_frame(frame)),
        _ => frame.function.clone(),
    }
}

fn name(totals: &Totals, node: NodeId) -> &str {
    let contexts = &totals.tree.contexts;
    &contexts.frames[contexts.nodes[node as usize].frame as usize].function
}

/// Returns the name of a cause, followed by what says more than the name: the function of other
/// threads, or the caller of a function with several callers and the call, or the function of a
/// system library, that takes more than half of the work.
fn worker(totals: &Totals, cause: NodeId) -> String {
    if let Some(function) = awaited_threads::working_function(totals, cause) {
        let (cause, function) = (spoken(totals, cause), spoken(totals, function));
        return format!("{cause} (which waits for threads in {function})");
    }
    let contexts = &totals.tree.contexts;
    // Calls in which ranks wait for each other are no work of the slow rank.
    let phases = totals.sums.phases.values();
    let waits: BTreeSet<NodeId> = phases
        .flat_map(|phase| phase.ends_in.into_iter().chain(phase.waits.keys().copied()))
        .collect();
    let ids = || 0..contexts.nodes.len() as NodeId;
    let sum_ns = |id: NodeId| totals.nodes[id as usize].inclusive.sum;
    let is_inside = |id: &NodeId| contexts.outwards(*id).any(|outer| outer == cause);
    let waited_ns: u128 = waits.iter().filter(|id| is_inside(id)).map(|id| sum_ns(*id)).sum();
    let whole_ns = sum_ns(cause).saturating_sub(waited_ns);
    let is_telling = |frame: &Frame| {
        frame.call.is_some() || is_system(frame) && !is_part(frame) && !is_unnamed(frame)
    };
    let callees = ids().filter(|id| {
        let is_callee = contexts.nodes[*id as usize].parent == Some(cause);
        is_callee && is_telling(contexts.frame_of(*id)) && !waits.contains(id)
    });
    let longest =
        callees.max_by_key(|id| sum_ns(*id)).filter(|callee| sum_ns(*callee) * 2 > whole_ns);
    let remarks = [
        one_of_callers(totals, cause).map(|caller| format!("called by {}", name(totals, caller))),
        longest.map(|callee| format!("mostly in {}", name(totals, callee))),
    ];
    let remarks: Vec<String> = remarks.into_iter().flatten().collect();
    match remarks.is_empty() {
        true => spoken(totals, cause),
        false => format!("{} ({})", spoken(totals, cause), remarks.join(", ")),
    }
}

/// Minimum time of a function below other callers, as a fraction of its time in a context, at which
/// its name alone does not tell the context.
const MIN_ELSEWHERE_FRACTION: f64 = 0.1;

/// Returns the function that calls a context, if other functions call the same one for a time that
/// counts, as they do a helper that is used everywhere.
fn one_of_callers(totals: &Totals, node: NodeId) -> Option<NodeId> {
    let contexts = &totals.tree.contexts;
    let frame = contexts.frame_of(node);
    if frame.kind == FrameKind::Loop {
        return None;
    }
    let caller = function_around(contexts, node)?;
    let sum = |node: NodeId| totals.nodes[node as usize].inclusive.sum as f64;
    let is_elsewhere = |other: NodeId| {
        let other_frame = contexts.frame_of(other);
        (&other_frame.function, &other_frame.module) == (&frame.function, &frame.module)
            && other_frame.kind != FrameKind::Loop
            && function_around(contexts, other)
                .is_some_and(|it| name(totals, it) != name(totals, caller))
    };
    let elsewhere: f64 =
        (0..contexts.nodes.len() as NodeId).filter(|it| is_elsewhere(*it)).map(sum).sum();
    (elsewhere > MIN_ELSEWHERE_FRACTION * sum(node)).then_some(caller)
}
