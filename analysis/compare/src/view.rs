//! Views of a comparison: text for people, JSON for programs. Views compute nothing.

use plimsoll_report::{Page, WIDTH};
use plimsoll_summary::phrase::{TIED, counted, fitted};

use crate::comparison::{Change, Comparison, VerdictKind};
use crate::diff_verdict::{percent, seconds, signed_percent};
use crate::growth::Growth;
use crate::pop::ScalingRow;

/// Maximum number of findings, growing contexts, losses and differences in the text.
const MAX_SHOWN: usize = 8;

/// Returns the comparison as one line of JSON with a line end.
///
/// # Errors
/// None for a comparison: floats that are not finite become `null`.
pub fn to_json(comparison: &Comparison) -> serde_json::Result<String> {
    let mut json = serde_json::to_string(comparison)?;
    json.push('\n');
    Ok(json)
}

/// Returns the comparison as text in plain ASCII, the verdict first.
pub fn text(comparison: &Comparison) -> String {
    let mut page = Page::new(WIDTH);
    head(&mut page, comparison);
    findings(&mut page, comparison);
    scaling(&mut page, comparison);
    growth(&mut page, comparison);
    losses(&mut page, comparison);
    differences(&mut page, comparison);
    if !comparison.notes.is_empty() {
        page.line("");
    }
    for note in &comparison.notes {
        paragraph(&mut page, "Note       ", note);
    }
    page.text("")
}

fn head(page: &mut Page, comparison: &Comparison) {
    let program = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let mut programs: Vec<String> =
        comparison.setups.iter().map(|setup| program(&setup.executable)).collect();
    programs.dedup();
    let mut ranks: Vec<u32> = comparison.setups.iter().map(|setup| setup.ranks).collect();
    ranks.dedup();
    let ranks = match ranks[..] {
        [number] => counted(number.into(), "rank"),
        _ => format!("{} ranks", ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")),
    };
    let runs: usize = comparison.setups.iter().map(|setup| setup.runs.len()).sum();
    paragraph(
        page,
        "",
        &format!(
            "{}: {runs} runs on {ranks}; {} expected ({})",
            programs.join(", "),
            comparison.expectation.kind.name(),
            comparison.expectation.reason
        ),
    );
    paragraph(page, "", &comparison.verdict.headline);
    if let Some(limit) = comparison.verdict.fail_above {
        let (value, limit) = (signed_percent(comparison.verdict.value), percent(limit));
        let outcome = match (comparison.verdict.failed, comparison.verdict.kind) {
            (true, _) => "FAILED",
            (false, VerdictKind::NoDifference | VerdictKind::Shifted) => {
                "passed, nothing beyond the noise"
            }
            (false, _) => "passed",
        };
        page.line(&format!("Limit {limit}, measured {value}: {outcome}."));
    }
}

fn findings(page: &mut Page, comparison: &Comparison) {
    let paths = comparison.findings.iter().map(|finding| finding.context);
    let of_differences = comparison.regression.iter().flat_map(|it| &it.contexts);
    let of_differences =
        of_differences.filter(|difference| difference.significant).filter_map(|it| it.context);
    let contexts: Vec<u32> = match comparison.regression {
        Some(_) => of_differences.collect(),
        None => paths.collect(),
    };
    let sentences = comparison.verdict.sentences.iter().zip(contexts);
    for (number, (sentence, context)) in sentences.take(MAX_SHOWN).enumerate() {
        page.line("");
        paragraph(page, &format!("{}. ", number + 1), sentence);
        if let Some(context) = comparison.contexts.get(context as usize) {
            let mut names: Vec<&str> =
                context.path.iter().map(|frame| frame.function.as_str()).collect();
            names.dedup();
            page.line(&format!("   {}", fitted(&names, WIDTH - 3)));
        }
    }
    more(page, comparison.verdict.sentences.len());
}

fn more(page: &mut Page, count: usize) {
    if count > MAX_SHOWN {
        page.line(&format!("   {} more: see the JSON.", count - MAX_SHOWN));
    }
}

fn scaling(page: &mut Page, comparison: &Comparison) {
    page.line("");
    page.line(
        "Ranks    elapsed  speedup   global = parallel (load balance x communication) x \
        computation",
    );
    for row in &comparison.scaling {
        page.line(&scaling_line(row));
    }
    let is_counted = |row: &ScalingRow| row.instruction_scaling.or(row.frequency_scaling).is_some();
    if comparison.scaling.iter().any(is_counted) {
        page.line("");
        page.line(
            "Ranks   computation = instructions x       IPC x frequency   instructions per cycle",
        );
        for row in &comparison.scaling {
            page.line(&computation_line(row));
        }
    }
}

fn computation_line(row: &ScalingRow) -> String {
    let part = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), percent);
    format!(
        "{:>5} {:>13} {:>14} {:>11} {:>11} {:>24}",
        row.ranks,
        part(row.computation_scaling),
        part(row.instruction_scaling),
        part(row.ipc_scaling),
        part(row.frequency_scaling),
        row.ipc.map_or_else(|| "-".to_owned(), |ipc| format!("{ipc:.2}")),
    )
}

fn scaling_line(row: &ScalingRow) -> String {
    let part = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), percent);
    format!(
        "{:>5} {:>10} {:>8} {:>8} {:>10} {:>14} {:>15} {:>13}",
        row.ranks,
        seconds(row.elapsed_s),
        row.speedup.map_or_else(|| "-".to_owned(), |speedup| format!("{speedup:.2}")),
        part(row.global),
        part(row.parallel),
        part(row.load_balance),
        part(row.communication),
        part(row.computation_scaling)
    )
}

fn growth(page: &mut Page, comparison: &Comparison) {
    // A quantity without weight in the last run needs no prediction.
    let run_s = comparison.scaling.last().map_or(0.0, |row| row.elapsed_s * f64::from(row.ranks));
    let least_s = comparison.thresholds.get("min_context_fraction").copied().unwrap_or(0.0) * run_s;
    let contexts = comparison.contexts.iter();
    let weighty = contexts.filter(|it| it.total_s.last().is_some_and(|last_s| *last_s >= least_s));
    let mut growing: Vec<(&str, &Growth)> =
        weighty.filter_map(|it| Some((it.name.as_str(), it.growth.as_ref()?))).collect();
    let predicted = |growth: &Growth| growth.predictions.last().map_or(0.0, |it| it.value_s);
    growing.sort_by(|(_, one), (_, other)| predicted(other).total_cmp(&predicted(one)));
    growing.truncate(MAX_SHOWN);
    let Some((_, first)) = growing.first() else { return };
    let what = match first.quantity.as_str() {
        "total_s" => "of the sum over ranks",
        _ => "of the time on each rank",
    };
    page.line("");
    page.line(&format!("Growth {what}, and predictions in seconds with their 95 % bands:"));
    let heads = first.predictions.iter().map(|it| format!("{:>20}", format!("{} ranks", it.ranks)));
    page.line(&format!("{:<26} {:<13}{}", "", "model", heads.collect::<String>()));
    for (name, growth) in &growing {
        let cells = growth.predictions.iter().map(|it| {
            let band = format!("({}-{})", digits(it.low_s), digits(it.high_s));
            format!("{:>20}", format!("{} {band}", digits(it.value_s)))
        });
        let (name, cells) = (short(name, 26), cells.collect::<String>());
        page.line(&format!("{name:<26} {:<13}{cells}", growth.model));
    }
    for (name, growth) in growing.iter().filter(|(_, growth)| !growth.decided) {
        let others = growth.alternatives.join(", ");
        paragraph(page, "   ", &format!("{name}: the data do not decide; as good: {others}."));
    }
}

/// Shortens a name to a column: without the scopes of its functions, then truncated.
fn short(name: &str, width: usize) -> String {
    if name.len() <= width {
        return name.to_owned();
    }
    let words = name.split(' ').map(|word| word.rsplit("::").next().unwrap_or(word));
    let bare = words.collect::<Vec<_>>().join(" ");
    bare.chars().take(width).collect()
}

/// Formats a number with three significant digits.
fn digits(value: f64) -> String {
    let digits = if value > 0.0 { 2 - value.log10().floor() as i32 } else { 0 };
    format!("{value:.*}", digits.clamp(0, 3) as usize)
}

fn losses(page: &mut Page, comparison: &Comparison) {
    let changed = || comparison.losses.iter().filter(|it| it.change != Change::Unchanged);
    if changed().next().is_none() {
        return;
    }
    page.line("");
    page.line("Losses within the runs:");
    for loss in changed().take(MAX_SHOWN) {
        let change = match loss.change {
            Change::Appeared => "appeared",
            Change::Grew => "grew",
            Change::Shrank => "shrank",
            Change::Vanished => "vanished",
            Change::Unchanged => "unchanged",
        };
        let severities: Vec<String> = loss.severity.iter().copied().map(percent).collect();
        let cause = loss.cause.as_ref().map_or_else(String::new, |it| format!(", caused by {it}"));
        paragraph(
            page,
            "   ",
            &format!(
                "{change}: {} in {}{cause}: {} of the run.",
                loss.kind,
                loss.symptom,
                severities.join(", ")
            ),
        );
    }
    more(page, changed().count());
}

fn differences(page: &mut Page, comparison: &Comparison) {
    let Some(regression) = &comparison.regression else { return };
    page.line("");
    page.line(
        "Context                                   before        after    change  std. error",
    );
    let rows = std::iter::once(&regression.elapsed).chain(&regression.contexts);
    for row in rows.take(MAX_SHOWN + 1) {
        let name = short(&row.name, 36);
        let mark = if row.significant { "  differs" } else { "" };
        page.line(&format!(
            "{name:<36} {:>12} {:>12} {:>9} {:>11}{mark}",
            seconds(row.before_s),
            seconds(row.after_s),
            row.change.map_or_else(|| "new".to_owned(), signed_percent),
            percent(row.error)
        ));
    }
}

/// Appends a paragraph; numbers stay on one line with their percent sign or unit.
fn paragraph(page: &mut Page, label: &str, text: &str) {
    let tied = text.replace(" %", &format!("{TIED}%")).replace(" s ", &format!("{TIED}s "));
    page.paragraph(label, &tied, usize::MAX);
}
