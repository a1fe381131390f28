//! Sentences of the outcome, shared by text and JSON.

use plimsoll_summary::{FrameKind, phrase};

use crate::comparison::{
    Comparison, Context, ExpectationKind, Finding, TimeClass, Verdict, VerdictKind,
};
use crate::diff_thresholds::{MIN_EXCESS_FRACTION, UNCHANGED_RATIO};
use crate::expectation::Expectation;
use crate::regression::Difference;
use crate::setups::Setup;

/// Formats a time.
pub fn seconds(time_s: f64) -> String {
    phrase::seconds(time_s).replace(phrase::TIED, " ")
}

/// Formats a fraction.
pub fn percent(fraction: f64) -> String {
    phrase::percent(fraction).replace(phrase::TIED, " ")
}

/// Formats a change with its sign.
pub fn signed_percent(fraction: f64) -> String {
    let sign = if fraction > 0.0 { "+" } else { "" };
    format!("{sign}{}", percent(fraction))
}

fn ranks(number: u32) -> String {
    phrase::counted(u64::from(number), "rank")
}

/// Creates a verdict that holds only the limit.
pub fn pending(fail_above: Option<f64>) -> Verdict {
    Verdict {
        kind: VerdictKind::AsExpected,
        headline: String::new(),
        sentences: Vec::new(),
        value: 0.0,
        fail_above,
        failed: false,
    }
}

/// Sets the verdict from the other values of the comparison.
pub fn conclude(comparison: &mut Comparison) {
    let verdict = match &comparison.regression {
        Some(_) => of_versions(comparison),
        None => of_scaling(comparison),
    };
    comparison.verdict = verdict;
}

fn of_scaling(comparison: &Comparison) -> Verdict {
    let fraction = comparison.excess.fraction;
    let (first, last) = match comparison.setups.as_slice() {
        [first, .., last] => (first, last),
        _ => return comparison.verdict.clone(),
    };
    let kind = if fraction >= MIN_EXCESS_FRACTION {
        VerdictKind::ScalingLoss
    } else if fraction <= -MIN_EXCESS_FRACTION {
        VerdictKind::BetterThanExpected
    } else {
        VerdictKind::AsExpected
    };
    let expected_s = seconds(comparison.excess.core_s - comparison.excess.seconds);
    let (run_s, size) = (seconds(comparison.excess.core_s), ranks(last.ranks));
    let from = format!("{} from {}", comparison.expectation.kind.name(), ranks(first.ranks));
    let headline = match kind {
        VerdictKind::ScalingLoss => format!(
            "{} of the run on {size} is excess work: {run_s} of core time, where {from} expects \
             {expected_s}.",
            percent(fraction)
        ),
        VerdictKind::BetterThanExpected => format!(
            "The run on {size} takes less than expected: {run_s} of core time, where {from} \
             expects {expected_s}."
        ),
        _ => format!(
            "The run on {size} takes what is expected: {run_s} of core time, where {from} expects \
             {expected_s}."
        ),
    };
    let limit = comparison.verdict.fail_above;
    Verdict {
        kind,
        headline,
        sentences: comparison.findings.iter().map(|finding| finding.sentence.clone()).collect(),
        value: fraction,
        fail_above: limit,
        failed: limit.is_some_and(|limit| fraction > limit),
    }
}

fn of_versions(comparison: &Comparison) -> Verdict {
    let Some(regression) = &comparison.regression else { return comparison.verdict.clone() };
    let elapsed = &regression.elapsed;
    let change = elapsed.change.unwrap_or(0.0);
    let changed: Vec<&Difference> =
        regression.contexts.iter().filter(|difference| difference.significant).collect();
    let kind = match (elapsed.significant, change > 0.0) {
        (true, true) => VerdictKind::Slower,
        (true, false) => VerdictKind::Faster,
        (false, _) if changed.is_empty() => VerdictKind::NoDifference,
        (false, _) => VerdictKind::Shifted,
    };
    let (before, after) = (seconds(elapsed.before_s), seconds(elapsed.after_s));
    let [first, second] = regression.repetitions;
    let runs = format!(
        "{} and {}",
        phrase::counted(first as u64, "run"),
        phrase::counted(second as u64, "run")
    );
    let headline = match kind {
        VerdictKind::Slower => format!(
            "The second version is {} slower: {after} instead of {before} ({runs}).",
            percent(change)
        ),
        VerdictKind::Faster => format!(
            "The second version is {} faster: {after} instead of {before} ({runs}).",
            percent(-change)
        ),
        VerdictKind::Shifted => format!(
            "The run time differs by no more than the noise, {before} and {after} ({}), but {} \
             more ({runs}).",
            signed_percent(change),
            if changed.len() == 1 { "one context differs by" } else { "some contexts differ by" }
        ),
        _ => format!(
            "No difference beyond the noise: {before} and {after} ({}; {runs}).",
            signed_percent(change)
        ),
    };
    let limit = comparison.verdict.fail_above;
    Verdict {
        kind,
        headline,
        sentences: changed.iter().map(|it| of_difference(it, &comparison.contexts)).collect(),
        value: change,
        fail_above: limit,
        failed: limit.is_some_and(|limit| elapsed.significant && change > limit),
    }
}

fn of_difference(difference: &Difference, contexts: &[Context]) -> String {
    let context = difference.context.and_then(|index| contexts.get(index as usize));
    let rest = if context.is_some_and(|context| context.rest) {
        " without the parts named apart"
    } else {
        ""
    };
    let times = format!(
        "{} instead of {} on each rank, {} of the run",
        seconds(difference.after_s),
        seconds(difference.before_s),
        signed_percent(difference.run_change)
    );
    let name = &difference.name;
    match difference.change {
        Some(change) if change > 0.0 => {
            format!("{name}{rest} takes {} longer: {times}.", percent(change))
        }
        Some(change) => format!("{name}{rest} takes {} less time: {times}.", percent(-change)),
        None => format!("{name}{rest} is new: {times}."),
    }
}

/// Returns the sentence for a part of the excess.
pub fn sentence(
    finding: &Finding,
    context: &Context,
    expectation: &Expectation,
    setups: &[Setup],
) -> String {
    let share = percent(finding.share.abs());
    let part = if finding.excess >= 0.0 {
        format!("{share} of the lost efficiency: ")
    } else {
        format!("Gained back, {share} of what is lost: ")
    };
    let rest = if context.rest { " without the parts named apart" } else { "" };
    let name = format!("{}{rest}", context.name);
    let what = match finding.class {
        TimeClass::Work => work(&name, context, expectation, setups),
        TimeClass::Waiting if is_mpi(context) => {
            format!("waiting in {name}, {}", per_rank(context, setups))
        }
        TimeClass::Waiting => format!(
            "waiting for other ranks, a core, a lock or a resource in {name}, {}",
            per_rank(context, setups)
        ),
        TimeClass::Communication => {
            format!("communication in {name}, {}", per_rank(context, setups))
        }
        TimeClass::Io => {
            format!("reading and writing files in {name}, {}", per_rank(context, setups))
        }
    };
    let cause = finding.caused_by.as_ref().map_or_else(String::new, |cause| {
        let of = setups.last().map_or(1, |setup| setup.ranks);
        let slow = phrase::ranks(&cause.slow_ranks, of);
        format!(", caused by {} ({} of {slow})", cause.name, cause.kind)
    });
    format!("{part}{what}{cause}.")
}

fn is_mpi(context: &Context) -> bool {
    context.path.last().is_some_and(|frame| frame.kind == FrameKind::Mpi)
}

/// Returns the first and the last value of a list.
fn ends(values: &[f64]) -> (f64, f64) {
    (values.first().copied().unwrap_or(0.0), values.last().copied().unwrap_or(0.0))
}

fn per_rank(context: &Context, setups: &[Setup]) -> String {
    let (first_s, last_s) = ends(&context.mean_s);
    let (from, to) = sizes(setups);
    if from == to {
        return format!("{} on each rank instead of {}", seconds(last_s), seconds(first_s));
    }
    format!("{} on each rank at {to}, {} at {from}", seconds(last_s), seconds(first_s))
}

fn sizes(setups: &[Setup]) -> (String, String) {
    let size = |setup: Option<&Setup>| setup.map_or_else(String::new, |setup| ranks(setup.ranks));
    (size(setups.first()), size(setups.last()))
}

fn work(name: &str, context: &Context, expectation: &Expectation, setups: &[Setup]) -> String {
    let ((first_s, last_s), (first_mean_s, last_mean_s)) =
        (ends(&context.total_s), ends(&context.mean_s));
    let per_rank = per_rank(context, setups);
    let growth = match &context.growth {
        // No term falls: a negative factor says how the work shrinks only for the sizes measured.
        Some(growth) if growth.decided && !growth.term.is_constant() && growth.c1_s > 0.0 => {
            let what = if growth.quantity == "total_s" { "in all" } else { "on each rank" };
            format!("; {what} it grows like {}", growth.model)
        }
        _ => String::new(),
    };
    // The first time is less than a thousandth of the last: a ratio says nothing.
    if first_s <= last_s * 1e-3 {
        return format!(
            "{name} computes {} in all that the first set-up does not have ({per_rank}){growth}",
            seconds(last_s)
        );
    }
    if expectation.kind != ExpectationKind::Strong {
        let wanted = expectation.factors.last().copied().unwrap_or(1.0);
        let ratio = times(last_s / first_s / wanted);
        return format!("{name} computes {ratio} as long as expected ({per_rank}){growth}");
    }
    let ratio = last_mean_s / first_mean_s;
    let kind = if (UNCHANGED_RATIO..=1.0 / UNCHANGED_RATIO).contains(&ratio) {
        "replicated work: "
    } else if ratio > 1.0 {
        "more on each rank: "
    } else {
        ""
    };
    let ratio = times(last_s / first_s);
    format!("{name} computes {ratio} as much in all ({kind}{per_rank}){growth}")
}

fn times(ratio: f64) -> String {
    match ratio {
        ratio if ratio >= 10.0 => format!("{ratio:.0} times"),
        ratio if ratio >= 1.2 => format!("{ratio:.1} times"),
        _ => format!("{ratio:.2} times"),
    }
}
