//! A loss in sentences: its symptom and its causes.

use plimsoll_summary::phrase::{
    bytes, count, counted, end_of, frame, percent, rank_count, ranks, seconds, waiting,
};
use plimsoll_summary::{
    Cause, Frame, FrameKind, Label, LockHolder, Loss, LossKind, Summary, Symptom, WhenKind,
    WorkDifference, WorkDifferenceKind,
};

/// Returns the whole loss in one sentence.
pub fn gist(summary: &Summary, loss: &Loss) -> String {
    let of = summary.run.ranks;
    let (slow, waiting) = (ranks(&loss.slow_ranks, of), waiting(&loss.waiting_ranks, of));
    let place = end_of(&loss.symptom.path);
    let cause = loss.causes.first().map(|cause| end_of(&cause.path));
    match (loss.kind, cause) {
        (LossKind::LoadImbalance, Some(cause)) if loss.by_turns => {
            format!("{cause} takes longer each time on another rank; {waiting} in {place}.")
        }
        (LossKind::LoadImbalance | LossKind::GroupImbalance, Some(cause)) => {
            format!("{cause} takes longer on {slow}; {waiting} in {place}.")
        }
        (LossKind::Serialization, Some(cause)) if loss.by_turns => {
            format!("only one rank at a time works in {cause}; {waiting} in {place}.")
        }
        (LossKind::Serialization, Some(cause)) => {
            format!("only {slow} works in {cause}; {waiting} in {place}.")
        }
        (LossKind::Oversubscription, _) => format!("{}.", crowded(summary)),
        (LossKind::SlowNode | LossKind::SlowCore, _) => {
            format!("{}; {waiting} in {place}.", slow_place(summary, loss))
        }
        (LossKind::FrequentCommunication, Some(cause)) => {
            format!("{cause} makes {}.", calls(loss))
        }
        (LossKind::LargeMessage, _) => format!("{}{}.", calls(loss), most_data(loss, of)),
        (LossKind::LargeIo | LossKind::FrequentCommunication, _) => format!("{}.", calls(loss)),
        (LossKind::LockContention, _) => format!("{waiting} for a lock in {place}."),
        (LossKind::ThreadImbalance, Some(cause)) => {
            format!("threads share the work of {cause} unevenly.")
        }
        (LossKind::SerialSection, Some(cause)) => {
            format!("only one thread works outside of parallel regions, mostly in {cause}.")
        }
        (LossKind::FineGrainedRegions, _) => format!("short parallel regions: {}.", calls(loss)),
        (LossKind::FineGrainedTasks, _) => format!("short tasks: {}.", calls(loss)),
        _ => format!("{waiting} in {place}."),
    }
}

/// Returns when the loss occurs; `None` for a steady loss.
pub fn happens(loss: &Loss) -> Option<String> {
    let when = loss.when?;
    let (from, to) = (seconds(when.from_s), seconds(when.to_s));
    match when.kind {
        WhenKind::Steady => None,
        WhenKind::Growing => Some(format!("it grows from {from} to {to} of the run.")),
        WhenKind::Confined => {
            Some(format!("{} of it between {from} and {to} of the run.", percent(when.share)))
        }
    }
}

/// Returns where the loss shows.
pub fn seen_in(summary: &Summary, loss: &Loss) -> String {
    let (of, list) = (summary.run.ranks, &loss.waiting_ranks);
    let (waiters, waiting) = (ranks(list, of), waiting(list, of));
    let symptom = &loss.symptom;
    let place = end_of(&symptom.path);
    let (mean, max) = (seconds(symptom.mean_s), seconds(symptom.max_s));
    match loss.kind {
        LossKind::LoadImbalance
        | LossKind::GroupImbalance
        | LossKind::Serialization
        | LossKind::SlowNode
        | LossKind::SlowCore => {
            format!("{place}, where {waiting} (wait time {max} at most, {mean} on average)")
        }
        LossKind::FrequentCommunication => {
            let poll = if loss.polling { "; they look whether something has arrived" } else { "" };
            format!("{} ({mean} per rank{poll})", calls(loss))
        }
        LossKind::LargeMessage => {
            format!("{} ({mean} per rank){}", calls(loss), most_data(loss, of))
        }
        LossKind::LargeIo => format!("{} ({mean} per rank)", calls(loss)),
        LossKind::WaitForPartner => {
            let their = if rank_count(list) == 1 { "its" } else { "their" };
            let (others, rest) = (also_in(loss), rest_elsewhere(loss));
            format!(
                "{place}, where {waiting} for {their} partners ({max} at most, {mean} on \
                 average){others}{rest}"
            )
        }
        LossKind::LockContention => {
            format!("{place}, where threads of {waiters} wait for a lock ({mean} per rank)")
        }
        LossKind::ThreadImbalance => format!(
            "{place}, where threads of {waiters} wait for the slowest one ({mean} per thread)"
        ),
        LossKind::SerialSection => {
            format!("{place}, where threads of {waiters} wait for the next parallel region")
        }
        LossKind::FineGrainedRegions => {
            format!("{} ({mean} without work in each thread)", calls(loss))
        }
        LossKind::FineGrainedTasks => format!("{} ({mean} per rank)", calls(loss)),
        LossKind::Oversubscription => {
            format!("{place}: runnable threads wait there for a core ({max} on the worst rank)")
        }
    }
}

/// Returns the ranks with the most data in large messages: `; rank 3 moves the most data`; empty if
/// ranks move about the same amount. `of` is the number of ranks of the run.
fn most_data(loss: &Loss, of: u32) -> String {
    let list = &loss.slow_ranks;
    let verb = if rank_count(list) == 1 { "moves" } else { "move" };
    match list.is_empty() {
        true => String::new(),
        false => format!("; {} {verb} the most data", ranks(list, of)),
    }
}

/// Returns the further contexts in which a loss shows: `; also MPI_Barrier (0.77 s on average)`;
/// empty if there are none.
fn also_in(loss: &Loss) -> String {
    const NAMED: usize = 2;
    let name = |it: &Symptom| format!("{} ({} on average)", end_of(&it.path), seconds(it.mean_s));
    let mut named: Vec<String> = loss.also_in.iter().take(NAMED).map(name).collect();
    if loss.also_in.len() > NAMED {
        named.push(format!("{} more", loss.also_in.len() - NAMED));
    }
    match named.split_last() {
        None => String::new(),
        Some((last, [])) => format!("; also {last}"),
        Some((last, others)) => format!("; also {} and {last}", others.join(", ")),
    }
}

/// Returns a part of a sentence if the contexts that are listed hold less than half of a loss, as
/// in a program that reaches its calls on many call paths by recursion; empty otherwise.
fn rest_elsewhere(loss: &Loss) -> &'static str {
    let listed_s: f64 = [&loss.symptom].into_iter().chain(&loss.also_in).map(|it| it.mean_s).sum();
    if 2.0 * listed_s < loss.seconds {
        "; most of the loss shows on other call paths, less on each"
    } else {
        ""
    }
}

/// Returns the ranks that are waited for: `ranks 0-2 wait for rank 3 (87 %)`; `None` if no partner
/// is known.
pub fn waited_for(summary: &Summary, loss: &Loss) -> Option<String> {
    const NAMED: usize = 3;
    const MIN_SHARE: f64 = 0.01;
    let of = summary.run.ranks;
    // Other ranks, with shorter waits, may have waited for the only one that is named.
    let is_itself = |list: &str| rank_count(list) == 1 && *list == loss.waiting_ranks;
    let partners =
        loss.waits_for.iter().filter(|it| it.share >= MIN_SHARE && !is_itself(&it.ranks));
    let named: Vec<String> = partners
        .clone()
        .take(NAMED)
        .map(|it| format!("{} ({})", ranks(&it.ranks, of), percent(it.share)))
        .collect();
    if named.is_empty() {
        return None;
    }
    let more = if partners.count() > NAMED { " and others" } else { "" };
    let reasons = reasons(loss).map_or_else(String::new, |reasons| format!(": {reasons}"));
    let waiting = waiting(&loss.waiting_ranks, of);
    Some(format!("{waiting} for {}{more}{reasons}", named.join(", ")))
}

/// Returns the functions that have the lock while others wait for it: `update (82 % of the
/// waiting)`, or `lock called by update` if the function has the lock for several callers; `None`
/// if they are not known.
pub fn held_by(loss: &Loss) -> Option<String> {
    const NAMED: usize = 3;
    // The call that acquires the lock is a part of the function that has the lock.
    let outer = |holder: &LockHolder| -> Vec<Frame> {
        let is_function = |frame: &&Frame| !matches!(frame.kind, FrameKind::Loop | FrameKind::Line);
        holder.path.iter().rev().skip(1).filter(is_function).cloned().collect()
    };
    let paths: Vec<Vec<Frame>> = loss.holders.iter().map(outer).collect();
    let name = |holder: &LockHolder| {
        let path = outer(holder);
        let innermost = path.first()?;
        let same = paths.iter().filter(|it| it.first() == Some(innermost));
        let differs = |at: &usize| same.clone().any(|it| it.get(*at) != path.get(*at));
        let caller = (1..path.len()).find(differs).map(|at| &path[at].function);
        let caller = caller.map_or_else(String::new, |it| format!(" called by {it}"));
        let shown: Vec<Frame> = path.iter().rev().cloned().collect();
        Some(format!("{}{caller} ({} of the waiting)", end_of(&shown), percent(holder.share)))
    };
    let named: Vec<String> = loss.holders.iter().take(NAMED).filter_map(name).collect();
    (!named.is_empty()).then(|| named.join(", "))
}

/// Returns why ranks wait for their partners: `late sender 92 %, unknown 5 %`; `None` if no reason
/// is known.
fn reasons(loss: &Loss) -> Option<String> {
    /// Reasons with a smaller fraction are left out.
    const LEAST: f64 = 0.01;
    let lateness = loss.lateness.as_ref().filter(|it| it.unknown < 1.0 - LEAST)?;
    let named = [
        ("late sender", lateness.late_sender),
        ("late receiver", lateness.late_receiver),
        ("transfer", lateness.transfer),
        ("unknown", lateness.unknown),
    ];
    let named = named.into_iter().filter(|(_, fraction)| *fraction >= LEAST);
    let named: Vec<String> =
        named.map(|(name, fraction)| format!("{name} {}", percent(fraction))).collect();
    (!named.is_empty()).then(|| named.join(", "))
}

/// Returns the main cause; `None` for kinds without causes.
pub fn caused_by(summary: &Summary, loss: &Loss) -> Option<String> {
    if loss.kind == LossKind::Oversubscription {
        return Some(crowded(summary));
    }
    if matches!(loss.kind, LossKind::SlowNode | LossKind::SlowCore) {
        return Some(slow_place(summary, loss));
    }
    let Some(first) = loss.causes.first() else {
        return (loss.kind == LossKind::WaitForPartner).then(|| "not known".to_owned());
    };
    let place = end_of(&first.path);
    let slow = ranks(&loss.slow_ranks, summary.run.ranks);
    let (mean, max) = (seconds(first.mean_s), seconds(first.max_s));
    Some(match loss.kind {
        LossKind::Serialization if loss.by_turns => {
            format!("{place}, where only one rank at a time works ({mean} on average)")
        }
        LossKind::Serialization => format!("{place}, where only {slow} works ({max})"),
        LossKind::LoadImbalance if loss.by_turns => {
            format!("{place}, which takes longer each time on another rank ({mean} on average)")
        }
        LossKind::LoadImbalance | LossKind::GroupImbalance => {
            format!("{place}, which takes longer on {slow} ({max} at most, {mean} on average)")
        }
        LossKind::WaitForPartner if !loss.slow_ranks.is_empty() => {
            let changes = loss.origin.as_ref().is_some_and(|origin| origin.changes);
            let times = if changes { " at different times" } else { "" };
            let share = percent(first.share);
            format!("{place} on {slow}{times}, while others wait ({share} of the loss)")
        }
        _ => format!("{place} ({} of the loss)", percent(first.share)),
    })
}

/// Returns the reason for which the first cause takes longer on the slow ranks; `None` if
/// instructions and cycles do not explain the difference.
pub fn difference(summary: &Summary, loss: &Loss) -> Option<String> {
    let difference = loss.causes.first()?.difference.as_ref()?;
    let WorkDifference { time_factor, instructions_factor, ipc, ipc_of_others, .. } = difference;
    let slow = ranks(&difference.ranks, summary.run.ranks);
    let (time, work) = (factor(*time_factor), factor(*instructions_factor));
    Some(match difference.kind {
        WorkDifferenceKind::MoreWork => format!(
            "more work on {slow}: {work} times the instructions of the others in {time} times the \
             time ({ipc:.2} instructions per cycle, the others {ipc_of_others:.2})"
        ),
        WorkDifferenceKind::SlowerWork => format!(
            "slower work on {slow}: {ipc:.2} instructions per cycle, the others {ipc_of_others:.2} \
             ({work} times the instructions in {time} times the time)"
        ),
    })
}

/// Returns a factor with three digits.
fn factor(factor: f64) -> String {
    let decimals = if factor < 10.0 { 2 } else { 0 };
    format!("{factor:.decimals$}")
}

/// Returns the further causes, one after the other; `None` if there are none.
pub fn further_causes(summary: &Summary, loss: &Loss) -> Option<String> {
    const NAMED: usize = 3;
    let (first, others) = loss.causes.split_first().filter(|(_, others)| !others.is_empty())?;
    let name = |cause: &Cause| {
        // A function is identified by its name, a loop is not.
        let name = match cause.path.last() {
            Some(end) if end.kind == FrameKind::Function => frame(end),
            _ => end_of(&cause.path),
        };
        let groups = summary.phases.get(loss.phase as usize).map_or(&[][..], |it| &it.groups);
        // Groups with separate tasks have functions of the same name.
        let group = cause.group.filter(|group| loss.group != Some(*group) && groups.len() > 1);
        let group = group.and_then(|group| groups.get(group as usize));
        let is_same = cause.path != first.path && end_of(&cause.path) == end_of(&first.path);
        let place = match group {
            Some(group) => format!(" on {}", ranks(&group.ranks, summary.run.ranks)),
            None if is_same => " on another call path".to_owned(),
            None => String::new(),
        };
        // Causes that even each other out add up to more than the loss.
        match loss.evened_out {
            true => format!("{name}{place} ({} uneven)", seconds(cause.seconds)),
            false => format!("{name}{place} ({} of the loss)", percent(cause.share)),
        }
    };
    let mut sentence =
        format!("also {}", others.iter().take(NAMED).map(name).collect::<Vec<_>>().join(", "));
    if others.len() > NAMED {
        sentence.push_str(&format!(" and {} more", others.len() - NAMED));
    }
    if loss.evened_out {
        sentence.push_str("; they lie on different ranks and partly even each other out");
    }
    Some(sentence)
}

/// Returns the calls of a symptom: `48,000 calls of MPI_Sendrecv, 1.4 ms and 8.0 KiB each`.
fn calls(loss: &Loss) -> String {
    let symptom = &loss.symptom;
    let place = end_of(&symptom.path);
    let number = if symptom.calls_exact { count(symptom.calls) } else { "many".into() };
    let mut sentence = match (symptom.calls, symptom.calls_exact) {
        (1, true) => format!("1 call of {place}"),
        _ => format!("{number} calls of {place}"),
    };
    let each = [
        symptom.per_call_s.map(seconds),
        symptom.bytes.and_then(|sum| Some(bytes(sum.checked_div(symptom.calls)?))),
    ];
    let each: Vec<String> = each.into_iter().flatten().collect();
    if !each.is_empty() {
        sentence.push_str(&format!(", {} each", each.join(" and ")));
    }
    if let Some(median_s) = loss.median_s {
        let pieces = if loss.kind == LossKind::FineGrainedTasks { "tasks" } else { "regions" };
        sentence.push_str(&format!(", {pieces} of {} (median)", seconds(median_s)));
    }
    if let Some((label, fraction)) = dominant(loss) {
        sentence.push_str(&format!(", {} of it {}", percent(fraction), words(label)));
    }
    sentence
}

/// Returns the label with most of a symptom's time, if it is more specific than the symptom's
/// label.
fn dominant(loss: &Loss) -> Option<(Label, f64)> {
    let parts = loss.symptom.breakdown.iter().filter(|(label, _)| **label != loss.label);
    let (label, fraction) = parts.max_by(|a, b| a.1.total_cmp(b.1))?;
    (*fraction > 0.2).then_some((*label, *fraction))
}

/// Returns a label in words.
pub fn words(label: Label) -> String {
    label.name().replace('_', " ")
}

/// Returns the slow place: `all work takes 1.50 times as long on node2 (ranks 4-7) as elsewhere`.
fn slow_place(summary: &Summary, loss: &Loss) -> String {
    let slow = ranks(&loss.slow_ranks, summary.run.ranks);
    let host = loss.node.as_deref().unwrap_or("an unknown node");
    let factor = loss.factor.map_or_else(|| "longer".into(), |it| format!("{it:.2} times as long"));
    let place = match loss.kind {
        LossKind::SlowNode => format!("node {host} ({slow})"),
        _ => format!("the core of {slow} on {host}"),
    };
    format!("all work takes {factor} on {place} as elsewhere")
}

/// Returns the most crowded node: `8 ranks share 2 cores of laptop`.
fn crowded(summary: &Summary) -> String {
    let run = &summary.run;
    let load = |ranks: &str, cores: u32| rank_count(ranks) as f64 / f64::from(cores.max(1));
    let worst =
        run.nodes.iter().max_by(|a, b| load(&a.ranks, a.cores).total_cmp(&load(&b.ranks, b.cores)));
    let Some(node) = worst else {
        return "more threads are ready to run than there are cores".into();
    };
    let (on_node, cores) = (rank_count(&node.ranks), u64::from(node.cores));
    if on_node > cores {
        let verb = if on_node == 1 { "shares" } else { "share" };
        let ranks = counted(on_node, "rank");
        return format!("{ranks} {verb} {} of {}", counted(cores, "core"), node.host);
    }
    format!(
        "{} in {}, or other programs, need more cores than {} has for this job ({cores})",
        counted(u64::from(run.threads), "thread"),
        counted(u64::from(run.ranks), "rank"),
        node.host
    )
}
