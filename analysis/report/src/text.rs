//! The text summary: the verdict first, the whole summary on one screen.

use super::cluster_sentences::{rank_clusters, thread_clusters, thread_roles};
use super::counter_lines::counters;
use super::loop_sentences::hottest;
use super::page::{Page, TIED};
use super::patterns::patterns;
use super::population_sentences::population;
use super::region_lines::regions;
use super::sentence::{
    caused_by, difference, further_causes, gist, happens, held_by, seen_in, waited_for,
};
use super::{WIDTH, tree_text};
use plimsoll_summary::phrase::{counted, hosts, path, percent, seconds};
use plimsoll_summary::{Frame, Loss, MpiAbi, Summary};
use plimsoll_summary::{KILLED, RUNNING};

/// Maximum number of lines of a text summary.
pub const TEXT_LINES: usize = 40;
/// Maximum number of lines of the tree in the summary of a run without losses.
const TREE_LINES: usize = 14;
/// Minimum number of lines of that tree: the end of the summary is shortened for them.
const MIN_TREE_LINES: usize = 8;
/// Maximum number of losses with one line each, where there is no room for more.
const MAX_BRIEF_LOSSES: usize = 3;
/// Maximum number of notes shown.
const MAX_NOTES: usize = 4;
/// Maximum number of lines of a note if there is room for it.
const MAX_NOTE_LINES: usize = 6;
/// Maximum number of lines of a note otherwise.
const MAX_SHORT_NOTE_LINES: usize = 3;
/// Labels of the paragraphs that the end of the summary has only where there is room for them: the
/// first ones are left out first.
const LEFT_OUT_FIRST: [&str; 8] =
    ["Note", "Patterns", "Regions", "Loops", "Threads", "Counters", "Clusters", "Sampled"];
/// Column at which the texts at the end of the summary begin.
const TAIL_INDENT: usize = 11;
/// Line limit of paragraphs that are never cut off: more than the longest advice has.
pub(crate) const MAX_PARAGRAPH_LINES: usize = 12;

/// Returns the text summary.
pub fn text(summary: &Summary) -> String {
    let mut page = head(summary);
    // The largest loss and the first ones of the others, or the tree, go before the end.
    let others = summary.losses.len().saturating_sub(1);
    let reserved = match summary.losses.first() {
        Some(largest) => block(summary, 1, largest).len() + brief_lines(others),
        None if summary.tree.nodes.is_empty() => 0,
        None => 1 + MIN_TREE_LINES,
    };
    // The end is longest with all losses in it. After this first layout the number of shown losses
    // is known.
    let longest = tail(summary, summary.losses.len(), MAX_SHORT_NOTE_LINES);
    let longest = longest.page(TEXT_LINES.saturating_sub(page.len() + reserved + 1));
    let room = TEXT_LINES.saturating_sub(longest.len() + 1);
    let mut shown = 0;
    if !summary.losses.is_empty() {
        shown = append_losses(&mut page, summary, room);
    } else if !summary.tree.nodes.is_empty() {
        page.line("");
        let lines = if has_mpi(summary) { TREE_LINES } else { TEXT_LINES };
        page.append(tree_text::view(summary, lines.min(room.saturating_sub(page.len()))));
    }
    page.truncate(room);
    page.line("");
    let room = TEXT_LINES - page.len();
    let whole = Some(tail(summary, shown, MAX_NOTE_LINES)).filter(|end| end.len() <= room);
    let end = whole.unwrap_or_else(|| tail(summary, shown, MAX_SHORT_NOTE_LINES));
    page.append(end.page(room));
    page.text("")
}

/// Returns whether the program used MPI.
pub fn has_mpi(summary: &Summary) -> bool {
    summary.run.mpi.abi != MpiAbi::None
}

/// Returns the program's name without its directories.
pub fn program(summary: &Summary) -> &str {
    let executable = summary.run.executable.as_str();
    executable.rsplit('/').next().unwrap_or(executable)
}

/// Returns job, ranks, nodes, time and efficiency.
pub fn headline(summary: &Summary) -> String {
    let run = &summary.run;
    let elapsed = seconds(run.elapsed_s);
    if !has_mpi(summary) {
        let threads = counted(u64::from(run.threads), "thread");
        return format!(
            "{}: {threads} on {}, {elapsed}, no MPI",
            program(summary),
            hosts(&run.nodes)
        );
    }
    let job = run.job.as_ref().map_or_else(String::new, |job| format!(", job {job}"));
    let ranks = match run.world_ranks.filter(|all| *all > run.ranks) {
        Some(all) => format!("{} of {}", run.ranks, counted(u64::from(all), "rank")),
        None => counted(u64::from(run.ranks), "rank"),
    };
    let threads = if run.threads > run.ranks {
        format!(" with {}", counted(u64::from(run.threads), "thread"))
    } else {
        String::new()
    };
    let efficiency = summary.efficiency.parallel.map_or_else(|| "unknown".into(), percent);
    format!(
        "{}{job}: {ranks}{threads} on {}, {elapsed}, parallel efficiency {efficiency}",
        program(summary),
        hosts(&run.nodes)
    )
}

/// Returns how the run ended, if it did not end regularly.
pub fn irregular_end(summary: &Summary) -> Option<String> {
    let run = &summary.run;
    (!run.complete).then(|| {
        let how = match (&run.incomplete, run.ended.as_str()) {
            (Some(reason), _) => return format!("INCOMPLETE: {reason}."),
            (None, RUNNING) => return "RUNNING: this is what was measured so far.".to_owned(),
            (None, KILLED) => "was killed".to_owned(),
            (None, ended) => format!("ended by {ended}"),
        };
        format!("INCOMPLETE: the run {how}; this is what was measured until then.")
    })
}

/// End of a sentence on work in threads between which few losses are found.
const NOT_COMPARED: &str = "the ranks work in threads, and only threads that were created at one \
                            place are compared with each other; see the lines Threads and Note.";

/// Returns the verdict in a sentence.
pub fn verdict(summary: &Summary) -> String {
    let elapsed_s = summary.run.elapsed_s;
    let Some(first) = summary.losses.first() else {
        return if summary.tree.nodes.is_empty() {
            "Nothing can be said: the run ended before the first sample was taken.".into()
        } else if summary.is_too_short() {
            let period_s = summary.run.period_us.asked * 1e-6;
            let least_s = summary.threshold("min_run_periods").unwrap_or_default() * period_s;
            format!(
                "Too short a run to find losses in: with a sample every {}, let it last {} or \
                 more.",
                seconds(period_s),
                seconds(least_s)
            )
        } else if !has_mpi(summary) {
            "Without MPI there are no ranks to compare; this is where the time went.".into()
        } else if summary.work_is_elsewhere() {
            format!("No verdict: {NOT_COMPARED}")
        } else if summary.computes_little() {
            format!(
                "No single loss costs more than {}, but the ranks compute little of it: see where \
                 they wait.",
                smallest_loss(summary)
            )
        } else if summary.run.complete {
            format!("No scalability loss found: none costs more than {}.", smallest_loss(summary))
        } else {
            "No scalability loss found in what was measured.".into()
        };
    };
    let cost = format!(
        "{} of {}, {}",
        seconds(first.seconds),
        seconds(elapsed_s),
        percent(first.severity)
    );
    match summary.losses.len() {
        1 => format!("One loss found: {} ({cost}).", first.kind),
        number => format!("{number} losses found. The largest: {} ({cost}).", first.kind),
    }
}

/// Returns the smallest loss that would have been reported: `1.0 % of the run time`; communication
/// separately if its threshold is higher.
fn smallest_loss(summary: &Summary) -> String {
    let of_run = |name| {
        let loss_s = summary.threshold(name).filter(|_| summary.run.elapsed_s > 0.0)?;
        Some(percent(loss_s / summary.run.elapsed_s))
    };
    match (of_run("min_loss_s"), of_run("min_communication_loss_s")) {
        (Some(loss), Some(communication)) if loss != communication => {
            format!("{loss} ({communication} for communication) of the run time")
        }
        (Some(loss), _) => format!("{loss} of the run time"),
        // Files of earlier versions do not contain the minimum loss.
        (None, _) => "a small part of the run time".into(),
    }
}

fn head(summary: &Summary) -> Page {
    let mut page = Page::new(WIDTH);
    page.paragraph("", &headline(summary), 2);
    if let Some(end) = irregular_end(summary) {
        page.paragraph("", &end, 2);
    }
    page.paragraph("", &verdict(summary), 2);
    for line in efficiencies(summary) {
        page.paragraph("", &line, 2);
    }
    if summary.losses.is_empty()
        && has_mpi(summary)
        && summary.run.complete
        && !summary.tree.nodes.is_empty()
        && !summary.is_too_short()
    {
        page.line(match summary.computes_little() || summary.work_is_elsewhere() {
            false => "To make it faster, speed up the work itself. Most of the time goes to:",
            true => "Most of the time goes to:",
        });
    }
    page
}

/// Returns the efficiencies of the ranks and of their threads, a line each. Beside losses, also
/// says if the threads that do the work were not compared.
fn efficiencies(summary: &Summary) -> Vec<String> {
    let it = &summary.efficiency;
    let mut lines = Vec::new();
    if !summary.losses.is_empty() && summary.work_is_elsewhere() {
        lines.push(format!("There may be more: {NOT_COMPARED}"));
    }
    if let (Some(parallel), Some(load), Some(communication)) =
        (it.parallel, it.load_balance, it.communication)
    {
        let threads = it.openmp.map(|it| format!(" x threads {}", percent(it.parallel)));
        lines.push(format!(
            "The ranks compute {} of the time: load balance {} x communication efficiency {}{}.",
            percent(parallel),
            percent(load),
            percent(communication),
            threads.unwrap_or_default()
        ));
    }
    if let Some(openmp) = &it.openmp {
        lines.push(format!(
            "OpenMP threads work {} of the time without MPI: load balance {} x scheduling {} x \
             serialisation {}.",
            percent(openmp.parallel),
            percent(openmp.load_balance),
            percent(openmp.scheduling),
            percent(openmp.serialisation)
        ));
    }
    lines
}

/// Appends as many losses as fit, the largest regardless of its length, and of the next ones a line
/// each. Returns the number of losses with all that is known of them.
fn append_losses(page: &mut Page, summary: &Summary, room: usize) -> usize {
    for (index, loss) in summary.losses.iter().enumerate() {
        let block = block(summary, index + 1, loss);
        let reserved = brief_lines(summary.losses.len() - index - 1);
        if index > 0 && page.len() + block.len() + reserved > room {
            append_brief_losses(page, summary, index);
            return index;
        }
        page.append(block);
    }
    summary.losses.len()
}

/// Returns the number of lines that [`append_brief_losses`] appends for `losses` losses.
fn brief_lines(losses: usize) -> usize {
    match losses {
        0 => 0,
        _ => 2 + losses.min(MAX_BRIEF_LOSSES),
    }
}

/// Appends a line for each of the first losses from `shown` on, and the number of the others.
fn append_brief_losses(page: &mut Page, summary: &Summary, shown: usize) {
    page.line("");
    let (brief, others) =
        summary.losses[shown..].split_at(MAX_BRIEF_LOSSES.min(summary.losses.len() - shown));
    for (number, loss) in (shown + 1..).zip(brief) {
        let (lost, part) = (seconds(loss.seconds), percent(loss.severity));
        let sentence = format!("{}, {lost} ({part}): {}", name(loss), gist(summary, loss));
        page.paragraph(&format!("{number}. "), &sentence, 1);
    }
    if let Some(largest) = others.first() {
        let losses = counted(others.len() as u64, "smaller loss");
        let each = seconds(largest.seconds);
        page.line(&format!("{losses} (at most {each} each) not shown: see the JSON file."));
    } else {
        page.line("All that is known of these is in the JSON file.");
    }
}

/// Returns the kind of a loss as a heading begins with it.
fn name(loss: &Loss) -> String {
    let kind = loss.kind.to_string();
    let (first, others) = kind.split_at(1);
    format!("{}{others}", first.to_ascii_uppercase())
}

fn block(summary: &Summary, number: usize, loss: &Loss) -> Page {
    let mut page = Page::new(WIDTH);
    page.line("");
    page.line(&format!(
        "{number}. {}: {} lost, {} of the run time",
        name(loss),
        seconds(loss.seconds),
        percent(loss.severity),
    ));
    page.paragraph("   Seen in    ", &seen_in(summary, loss), 3);
    append_path(&mut page, &loss.symptom.path);
    if let Some(partners) = waited_for(summary, loss) {
        page.paragraph("              ", &partners, 2);
    }
    if let Some(holders) = held_by(loss) {
        page.paragraph("   Held by    ", &holders, 3);
    }
    if let Some(cause) = caused_by(summary, loss) {
        page.paragraph("   Caused by  ", &cause, 3);
        if let Some(first) = loss.causes.first() {
            append_path(&mut page, &first.path);
        }
    }
    if let Some(difference) = difference(summary, loss) {
        page.paragraph("              ", &difference, 2);
    }
    if let Some(others) = further_causes(summary, loss) {
        page.paragraph("              ", &others, 3);
    }
    if let Some(when) = happens(loss) {
        page.paragraph("   When       ", &when, 2);
    }
    page.paragraph("   Advice     ", &loss.advice, MAX_PARAGRAPH_LINES);
    page
}

/// A path of one frame would only repeat the name.
fn append_path(page: &mut Page, frames: &[Frame]) {
    const INDENT: &str = "              ";
    if frames.len() > 1 {
        page.line(&format!("{INDENT}{}", path(frames, WIDTH - INDENT.len())));
    }
}

/// Paragraphs at the end of the summary.
#[derive(Default)]
struct Tail {
    /// Each with its label; those without one continue the paragraph before them.
    paragraphs: Vec<(&'static str, Page)>,
}

impl Tail {
    /// Appends a paragraph of at most `most` lines. An empty label continues the paragraph before
    /// it.
    fn add(&mut self, label: &'static str, text: &str, most: usize) {
        let mut page = Page::new(WIDTH);
        page.paragraph(&format!("{label:TAIL_INDENT$}"), text, most);
        let before = self.paragraphs.last().map_or("", |(label, _)| *label);
        self.paragraphs.push((if label.is_empty() { before } else { label }, page));
    }

    /// Appends paragraphs under one label.
    fn add_all(&mut self, label: &'static str, texts: &[String], most: usize) {
        for (index, text) in texts.iter().enumerate() {
            self.add(if index == 0 { label } else { "" }, text, most);
        }
    }

    /// Returns the lines, at most `room` of them as far as leaving out paragraphs with a label in
    /// [`LEFT_OUT_FIRST`] achieves that. The last line then says which labels lack lines.
    fn page(mut self, room: usize) -> Page {
        let mut left_out: Vec<&str> = Vec::new();
        for label in LEFT_OUT_FIRST {
            while self.len() + usize::from(!left_out.is_empty()) > room
                && let Some(last) = self.paragraphs.iter().rposition(|(it, _)| *it == label)
            {
                self.paragraphs.remove(last);
                if left_out.last() != Some(&label) {
                    left_out.push(label);
                }
            }
        }
        if !left_out.is_empty() {
            self.add("Left out", &format!("{}: see the JSON file.", left_out.join(", ")), 1);
        }
        let mut page = Page::new(WIDTH);
        self.paragraphs.into_iter().for_each(|(_, paragraph)| page.append(paragraph));
        page
    }

    fn len(&self) -> usize {
        self.paragraphs.iter().map(|(_, page)| page.len()).sum()
    }
}

fn tail(summary: &Summary, shown: usize, note_lines: usize) -> Tail {
    let mut tail = Tail::default();
    if shown > 0 {
        tail.add("Run time", &run_times(summary, shown), 3);
    }
    tail.add_all("Loops", &hottest(summary), 3);
    tail.add_all("Clusters", rank_clusters(summary).as_slice(), 3);
    tail.add_all("Sampled", population(summary).as_slice(), 3);
    for pattern in patterns(summary) {
        tail.add("Patterns", &pattern, 2);
    }
    let threads: Vec<String> =
        [thread_clusters(summary), thread_roles(summary)].into_iter().flatten().collect();
    tail.add_all("Threads", &threads, 3);
    tail.add_all("Regions", &regions(summary), 2);
    tail.add_all("Counters", counters(summary).as_slice(), 3);
    tail.add("Measured", &measured(summary), 3);
    for note in summary.notes.iter().take(MAX_NOTES) {
        tail.add("Note", note, note_lines);
    }
    if summary.notes.len() > MAX_NOTES {
        let more = counted((summary.notes.len() - MAX_NOTES) as u64, "further note");
        tail.add("", &format!("{more}: see the JSON file."), 1);
    }
    if !summary.tree.nodes.is_empty() {
        let all = "`plimsoll report --tree FILE.plimsoll.json` shows all call paths.";
        tail.add("More", all, 1);
    }
    tail
}

fn run_times(summary: &Summary, shown: usize) -> String {
    let mut times = format!("{} as measured", seconds(summary.run.elapsed_s));
    for (index, loss) in summary.losses.iter().take(shown).enumerate() {
        let tied = format!(" without {}", index + 1).replace(' ', &TIED.to_string());
        times.push_str(&format!("; {}{tied}", seconds(loss.elapsed_without_s)));
    }
    if summary.losses.len() > 1 {
        let all = seconds(summary.projection.elapsed_s);
        times.push_str(&format!("; {all} without all losses"));
    }
    times
}

fn measured(summary: &Summary) -> String {
    let collection = &summary.collection;
    // Most records are those of calls and of parallel regions.
    let lost = match collection.lost {
        0 => "none".into(),
        lost => counted(lost, "record"),
    };
    let samples = counted(collection.samples, "sample");
    let mut sentence = format!("{samples}, {lost} lost; overhead {}", cost(summary));
    if let Some(finalize_s) = collection.finalize_s {
        sentence.push_str(&format!("; {} for the analysis at the end", seconds(finalize_s)));
    }
    if collection.truncated > 0 {
        // Call paths of calls are included; the number of all call paths is not known.
        let paths = counted(collection.truncated, "call path");
        let (verb, most) = match collection.truncated {
            1 => ("is", ""),
            _ => ("are", "most of them "),
        };
        sentence.push_str(&format!("; {paths} {verb} truncated"));
        if let Some(reason) = collection.truncated_by.main_reason() {
            sentence.push_str(&format!(", {most}{reason}"));
        }
    }
    if collection.pruned > 0 {
        let stacks = counted(collection.pruned, "stack");
        sentence.push_str(&format!("; {stacks} without inner frames, for lack of memory"));
    }
    if collection.unsampled_threads > 0 {
        let threads = counted(collection.unsampled_threads, "thread");
        sentence.push_str(&format!("; {threads} not sampled"));
    }
    sentence.push('.');
    sentence
}

/// Returns the cost of the measurement: `0.26 % of CPU time (2.2 ms sampling, 40.2 ms collecting)`.
pub fn cost(summary: &Summary) -> String {
    let collection = &summary.collection;
    let (sampling_s, collecting_s) = (collection.sampling_cpu_s, collection.collector_cpu_s);
    let available_s = summary.run.elapsed_s * f64::from(summary.run.ranks.max(1));
    // The collector of a run that was killed, or still runs, has not said what it took.
    let (least, collecting) = match collecting_s > 0.0 {
        true => ("", format!("{} collecting", seconds(collecting_s))),
        false => ("at least ", "collecting unknown".into()),
    };
    let part = match summary.is_too_short() {
        false => {
            let percent = 100.0 * (sampling_s + collecting_s) / available_s;
            format!("{least}{percent:.2} % of CPU time")
        }
        true => "not to be compared with so short a run".into(),
    };
    format!("{part} ({} sampling, {collecting})", seconds(sampling_s))
}

/// Returns a loss on one line or two, for [`super::brief`].
pub fn in_brief(summary: &Summary, loss: &Loss) -> String {
    let (cost, part) = (seconds(loss.seconds), percent(loss.severity));
    format!("{}, {cost} ({part}): {}", loss.kind, gist(summary, loss))
}
