//! Advice: a loss in one or two sentences, with what to try.

use std::cmp::Ordering::Equal;

use plimsoll_collector::profile::NodeId;

use crate::losses::Finding;
use crate::ranks::RankSet;
use crate::summary::LossKind;
use crate::totals::Totals;

/// What a sentence about a loss needs to know.
pub struct Facts<'a> {
    /// The loss.
    pub finding: &'a Finding,
    /// Its slow ranks.
    pub slow: &'a RankSet,
    /// Its waiting ranks.
    pub waiting: &'a RankSet,
    /// Mean and maximum over ranks of the time in the first cause, in seconds.
    pub cause_s: (f64, f64),
}

/// What to tell the user.
pub fn advice(totals: &Totals, facts: &Facts<'_>) -> String {
    match facts.finding.kind {
        LossKind::Oversubscription => crowded(totals, facts),
        LossKind::Serialization => serial(totals, facts),
        _ => uneven(totals, facts),
    }
}

fn uneven(totals: &Totals, facts: &Facts<'_>) -> String {
    let Some(cause) = facts.finding.causes.first() else { return String::new() };
    let (name, sync) = (worker(totals, cause.node), name(totals, facts.finding.symptom));
    let (mean_s, max_s) = facts.cause_s;
    if facts.finding.by_turns {
        return format!(
            "{name} takes about the same time on every rank in total ({mean_s:.3} s on average), \
             but each time another rank is slow in it and the others wait in {sync}. Even out \
             each step's work, or synchronise less often so that the ranks can catch up."
        );
    }
    let others = match facts.finding.causes.len() {
        1 => "",
        _ if facts.finding.evened_out => {
            " Further causes lie on other ranks and partly even it out."
        }
        _ => " Further functions add to it.",
    };
    format!(
        "{name} takes {max_s:.3} s on the slowest rank and {mean_s:.3} s on average; {} slow in \
         it, and {} for {} in {sync}.{others} Distribute its work more evenly.",
        ranks(facts.slow, "is", "are"),
        ranks(facts.waiting, "waits", "wait"),
        plural(facts.slow.len(), "it", "them"),
    )
}

fn serial(totals: &Totals, facts: &Facts<'_>) -> String {
    let Some(cause) = facts.finding.causes.first() else { return String::new() };
    format!(
        "Only {} in {} ({:.3} s), all others wait for it in {}. Distribute this work over the \
         ranks, or overlap it with work that does not depend on it.",
        ranks(facts.slow, "is", "are"),
        worker(totals, cause.node),
        facts.cause_s.1,
        name(totals, facts.finding.symptom),
    )
}

fn crowded(totals: &Totals, facts: &Facts<'_>) -> String {
    let wait = format!(
        "They waited {:.3} s each for a core, most of it in {}.",
        facts.finding.seconds,
        name(totals, facts.finding.symptom),
    );
    let crowded = totals.job.hosts.iter().filter(|(_, host)| host.is_crowded());
    let worst = crowded.max_by(|(_, a), (_, b)| a.load().partial_cmp(&b.load()).unwrap_or(Equal));
    match worst {
        Some((host, at)) => format!(
            "{} {} with {} busy {} {} {} on {host}. {wait} Start fewer ranks or threads on a \
             node, or give the job more cores.",
            at.ranks.len(),
            plural(at.ranks.len(), "rank", "ranks"),
            at.busy_threads,
            plural(at.busy_threads, "thread", "threads"),
            plural(at.ranks.len(), "shares", "share"),
            cores(at.cores.len()),
        ),
        _ => format!(
            "The ranks have cores enough, but others use them too or several ranks are bound to \
             the same one. {wait} Check the binding of ranks to cores and what else runs there."
        ),
    }
}

fn cores(count: usize) -> String {
    format!("{count} {}", if count == 1 { "core" } else { "cores" })
}

fn plural(count: u32, one: &'static str, many: &'static str) -> &'static str {
    if count == 1 { one } else { many }
}

/// The ranks with their verb: `rank 3 is`, `ranks 0-2 are`.
fn ranks(set: &RankSet, one: &str, many: &str) -> String {
    match set.len() {
        1 => format!("rank {set} {one}"),
        _ => format!("ranks {set} {many}"),
    }
}

fn name(totals: &Totals, node: NodeId) -> &str {
    let contexts = &totals.tree.contexts;
    &contexts.frames[contexts.nodes[node as usize].frame as usize].function
}

/// The name of a cause and, where one call takes most of its time, that call: it is the reason.
fn worker(totals: &Totals, cause: NodeId) -> String {
    let contexts = &totals.tree.contexts;
    let whole = totals.nodes[cause as usize].inclusive.sum;
    let calls = contexts.nodes.iter().zip(0..).filter(|(node, _)| {
        node.parent == Some(cause) && contexts.frames[node.frame as usize].call.is_some()
    });
    let most = calls.max_by_key(|(_, id)| totals.nodes[*id as usize].inclusive.sum);
    match most {
        Some((_, call)) if totals.nodes[call as usize].inclusive.sum * 2 > whole => {
            format!("{} (mostly in {})", name(totals, cause), name(totals, call))
        }
        _ => name(totals, cause).to_owned(),
    }
}
