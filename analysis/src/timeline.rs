//! The run over time: from the ranks' bins ([`TimeSeries`]) on one clock to efficiencies by window,
//! cells of a timeline (PPoPP20, Figure 10) and the time of losses.
//!
//! Process 0 sends a [`Plan`] to all processes. Each process fills a [`TimelineTotals`] with its
//! ranks, and a reduction adds them up. One has at most [`MAX_ROWS`] rows, 256 columns and
//! [`MAX_WINDOWS`] windows, so its size does not depend on the number of ranks. Cells of other
//! threads are finished at their rank, and the reduction keeps a bounded number of them.
//!
//! [`TimeSeries`]: plimsoll_collector::profile::TimeSeries
//! [`MAX_ROWS`]: plimsoll_summary::timeline_file::MAX_ROWS

mod cells;
mod choice;
mod grid;
mod thread_rows;

use plimsoll_collector::profile::{NodeId, TimeBin, TimeSeries};
use plimsoll_summary::ranks::RankSet;
use plimsoll_summary::timeline_file::{
    MAX_CELLS, MAX_ROWS, Timeline, TimelineRow, TimelineVersion,
};
use serde::{Deserialize, Serialize};

use crate::canonical::{CanonicalTree, Threads};
use crate::clocks::Alignment;
use crate::communicator::{Communicator, CommunicatorError, broadcast, reduce};
use crate::metrics::NS_PER_S;
use crate::rank::Rank;
use crate::summary::Window;

use cells::{Cells, Part};
pub use choice::{chosen, symptoms};
pub use grid::Grid;
use thread_rows::ThreadRows;

/// Maximum number of windows.
const MAX_WINDOWS: u64 = 128;

/// Maximum number of columns of cells of threads: the number of bins of one.
const MAX_THREAD_COLUMNS: u64 = 48;

/// Returns whether each rank has a row of its own. Only below such rows there are rows of threads.
pub fn have_rows_of_their_own(ranks: &RankSet) -> bool {
    ranks.len() as usize <= MAX_ROWS
}

/// Request of process 0 to all ranks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    columns: Grid,
    windows: Grid,
    /// Number of rows of cells; 0 without a timeline.
    rows: u32,
    /// Columns of the cells of threads; `None` without these.
    thread_columns: Option<Grid>,
    ranks: RankSet,
    alignment: Alignment,
    /// Contexts that cells may show, ascending.
    chosen: Vec<NodeId>,
    /// Contexts of each symptom of a loss, the symptom itself first.
    symptoms: Vec<Vec<NodeId>>,
}

impl Plan {
    /// Builds a plan for the ranks of a run of `span_ns` nanoseconds, pauses included, with bins of
    /// `bin_ns` nanoseconds.
    pub fn new(
        (ranks, span_ns, bin_ns): (RankSet, u64, u64),
        alignment: Alignment,
        wants_cells: bool,
        (chosen, symptoms): (Vec<NodeId>, Vec<Vec<NodeId>>),
    ) -> Self {
        let columns = Grid::of_run(span_ns, bin_ns);
        let rows = if wants_cells { ranks.len().min(MAX_ROWS as u32) } else { 0 };
        let windows = columns.with_at_most(MAX_WINDOWS);
        let shows_threads = wants_cells && have_rows_of_their_own(&ranks);
        let thread_columns = shows_threads.then(|| columns.halved_to(MAX_THREAD_COLUMNS));
        Self { columns, windows, rows, thread_columns, ranks, alignment, chosen, symptoms }
    }

    /// Returns the row of a rank; `None` without a timeline or for an unknown rank.
    fn row(&self, rank: u32) -> Option<u32> {
        let position = u64::from(self.ranks.position(rank)?);
        let row = position * u64::from(self.rows) / u64::from(self.ranks.len());
        (self.rows > 0).then_some(row as u32)
    }
}

/// Values of some ranks over time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TimelineTotals {
    windows: Vec<Useful>,
    /// Times by symptom and window.
    in_symptoms: Vec<Vec<InSymptom>>,
    cells: Cells,
    threads: ThreadRows,
}

/// Useful time of ranks in a window, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Useful {
    sum_ns: u64,
    max_ns: u64,
    /// Most time of any rank, useful or not; less than the length of the window if all ranks paused
    /// the measurement, 0 if no rank was measured.
    measured_ns: u64,
}

/// Time of ranks in a symptom in a window, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InSymptom {
    /// Sum over all ranks.
    pub sum_ns: u64,
    /// Minimum over ranks.
    pub min_ns: u64,
}

/// Adds up the values of all ranks over time. Returns the sum on process 0, `None` elsewhere.
/// `tree` must hold the contexts that the plan of process 0 names. Collective.
pub fn add_up(
    comm: &dyn Communicator,
    ranks: &[Rank<'_>],
    tree: &mut CanonicalTree,
    plan: Result<Option<Plan>, CommunicatorError>,
) -> Result<Option<(Plan, TimelineTotals)>, CommunicatorError> {
    let plan = broadcast(comm, plan)?;
    let mut ours: Option<TimelineTotals> = None;
    for rank in ranks {
        let timeline_totals = TimelineTotals::of_rank(rank, tree, &plan);
        ours = Some(match ours {
            Some(ours) => ours.combine(timeline_totals),
            None => timeline_totals,
        });
    }
    let all = reduce(comm, ours, |ours, theirs| match (ours, theirs) {
        (Some(ours), Some(theirs)) => Some(ours.combine(theirs)),
        (one, other) => one.or(other),
    })?;
    Ok(all.flatten().map(|timeline_totals| (plan, timeline_totals)))
}

impl TimelineTotals {
    /// Returns the values of one rank; `tree` holds the contexts that the plan names.
    pub fn of_rank(rank: &Rank<'_>, tree: &mut CanonicalTree, plan: &Plan) -> Self {
        let times = &rank.input.profile.times;
        let is_wait = rank.context_classes.iter().map(|it| !it.is_work()).collect();
        let known = Known::of(rank, tree, plan, Threads::Main, &times.bins, is_wait);
        let useful = useful_by_window(rank, plan.windows, &plan.alignment);
        let mut in_symptoms = vec![vec![0; plan.windows.count as usize]; plan.symptoms.len()];
        let mut measured = vec![0; plan.windows.count as usize];
        let mut cells = plan.row(rank.input.rank).map(|row| (row, plan.columns.row()));
        for (bin, [begin_ns, end_ns]) in aligned_bins(rank, times, &plan.alignment) {
            plan.windows.spread(begin_ns, end_ns, bin.whole_ns(), |at, ns| measured[at] += ns);
            for (symptom, ns) in known.in_symptoms(bin) {
                let windows = &mut in_symptoms[symptom as usize];
                plan.windows.spread(begin_ns, end_ns, ns, |at, ns| windows[at] += ns);
            }
            if let Some((_, row)) = &mut cells {
                for part in known.parts(bin) {
                    let add = |at: usize, ns| row[at].add(Part { ns, ..part });
                    plan.columns.spread(begin_ns, end_ns, part.ns, add);
                }
            }
        }
        let windows = useful.into_iter().zip(measured);
        let windows = windows.map(|(useful_ns, measured_ns)| Useful {
            sum_ns: useful_ns,
            max_ns: useful_ns,
            measured_ns,
        });
        let windows = windows.collect();
        let of_symptom = |windows: Vec<u64>| {
            windows.into_iter().map(|ns| InSymptom { sum_ns: ns, min_ns: ns }).collect()
        };
        let in_symptoms = in_symptoms.into_iter().map(of_symptom).collect();
        let threads = ThreadRows::of_rank(rank, tree, plan);
        Self { windows, in_symptoms, cells: Cells::of_row(cells), threads }
    }

    /// Adds the values of other ranks.
    #[must_use]
    pub fn combine(mut self, other: Self) -> Self {
        for (ours, theirs) in self.windows.iter_mut().zip(other.windows) {
            ours.sum_ns += theirs.sum_ns;
            ours.max_ns = ours.max_ns.max(theirs.max_ns);
            ours.measured_ns = ours.measured_ns.max(theirs.measured_ns);
        }
        let ours = self.in_symptoms.iter_mut().flatten();
        for (ours, theirs) in ours.zip(other.in_symptoms.into_iter().flatten()) {
            ours.sum_ns += theirs.sum_ns;
            ours.min_ns = ours.min_ns.min(theirs.min_ns);
        }
        self.cells.combine(other.cells);
        self.threads.combine(other.threads);
        self
    }

    /// Returns the efficiencies by window of a run of `span_ns` nanoseconds, pauses included. As in
    /// the efficiencies of the whole run, pauses of all ranks do not count.
    pub fn windows(&self, plan: &Plan, span_ns: u64) -> Vec<Window> {
        let window = |(useful, at): (&Useful, u64)| {
            let (begin_ns, end_ns) = plan.windows.window(at, span_ns);
            let length_ns = end_ns.saturating_sub(begin_ns).min(useful.measured_ns) as f64;
            let mean_ns = useful.sum_ns as f64 / f64::from(plan.ranks.len().max(1));
            let of = |part: f64, whole: f64| (whole > 0.0).then(|| (part / whole).clamp(0.0, 1.0));
            Window {
                begin_s: begin_ns as f64 / NS_PER_S,
                end_s: end_ns as f64 / NS_PER_S,
                parallel: of(mean_ns, length_ns),
                load_balance: of(mean_ns, useful.max_ns as f64),
                communication: of(useful.max_ns as f64, length_ns),
            }
        };
        self.windows.iter().zip(0..).map(window).collect()
    }

    /// Returns for each window whether any rank was measured in it.
    pub fn are_measured(&self) -> impl Iterator<Item = bool> {
        self.windows.iter().map(|useful| useful.measured_ns > 0)
    }

    /// Returns by how much the rank with most useful time exceeds the mean, summed over the
    /// windows, in nanoseconds.
    pub fn uneven_useful_ns(&self, plan: &Plan) -> f64 {
        let ranks = f64::from(plan.ranks.len().max(1));
        let uneven_ns = |useful: &Useful| useful.max_ns as f64 - useful.sum_ns as f64 / ranks;
        self.windows.iter().map(uneven_ns).sum()
    }

    /// Returns the useful time of all ranks by window, in nanoseconds.
    pub fn useful_ns(&self) -> Vec<f64> {
        self.windows.iter().map(|useful| useful.sum_ns as f64).collect()
    }

    /// Returns the time of the ranks in a symptom of the plan by window, and the length of a window
    /// in seconds.
    pub fn in_symptom(&self, plan: &Plan, symptom: NodeId) -> Option<(&[InSymptom], f64)> {
        let place = plan.symptoms.iter().position(|contexts| contexts[0] == symptom)?;
        let windows = self.in_symptoms.get(place)?;
        Some((windows, plan.windows.width_ns as f64 / NS_PER_S))
    }

    /// Returns the timeline; `None` if none was requested. `places` holds the index of each context
    /// in the summary's tree.
    pub fn timeline(&self, plan: &Plan, places: &[Option<u32>]) -> Option<Timeline> {
        let columns = plan.columns.count as usize;
        if plan.rows == 0 || columns == 0 || plan.rows as usize * columns > MAX_CELLS {
            return None;
        }
        let mut indices = Vec::with_capacity(plan.chosen.len());
        let mut nodes = Vec::new();
        for node in &plan.chosen {
            let place = places.get(*node as usize).copied().flatten();
            indices.push(place.map_or(-1, |_| nodes.len() as i32));
            nodes.extend(place);
        }
        let (mut cells, mut wait) = (Vec::new(), Vec::new());
        for row in 0..plan.rows {
            for cell in self.cells.row(row, columns) {
                let most = cell.most().and_then(|node| indices.get(node as usize).copied());
                cells.push(most.unwrap_or(-1));
                wait.push(cell.wait());
            }
        }
        Some(Timeline {
            schema: TimelineVersion::V1,
            begin_s: 0.0,
            end_s: plan.columns.end_ns() as f64 / NS_PER_S,
            columns: columns as u32,
            rows: rows_of(&plan.ranks, plan.rows),
            nodes,
            cells,
            wait,
            threads: plan.thread_columns.and_then(|columns| self.threads.grid(columns, &indices)),
        })
    }
}

/// Returns the ranks of each row: the inverse of [`Plan::row`].
fn rows_of(ranks: &RankSet, rows: u32) -> Vec<TimelineRow> {
    let (all, rows) = (u64::from(ranks.len()), u64::from(rows));
    let mut each = ranks.iter();
    let row = |row: u64| {
        let begin = (row * all).div_ceil(rows);
        let end = ((row + 1) * all).div_ceil(rows);
        let ranks: RankSet = each.by_ref().take((end - begin) as usize).collect();
        TimelineRow { ranks: ranks.to_string() }
    };
    (0..rows).map(row).collect()
}

/// Returns the bins of a thread of a rank with begin and end on the reference's clock, in
/// nanoseconds.
fn aligned_bins<'r>(
    rank: &Rank<'r>,
    times: &'r TimeSeries,
    alignment: &Alignment,
) -> impl Iterator<Item = (&'r TimeBin, [i64; 2])> {
    let input = rank.input;
    let width_ns = times.width_ns;
    let mut begin_ns = alignment.begin_ns(input);
    let run_end_ns = begin_ns.saturating_add_unsigned(input.profile.span_ns());
    times.bins.iter().map(move |bin| {
        let span = [begin_ns, begin_ns.saturating_add_unsigned(width_ns).min(run_end_ns)];
        begin_ns = span[1];
        (bin, span)
    })
}

/// Returns the useful time of a rank in each window, in nanoseconds.
pub fn useful_by_window(rank: &Rank<'_>, windows: Grid, alignment: &Alignment) -> Vec<u64> {
    let mut useful = vec![0; windows.count as usize];
    for (bin, [begin_ns, end_ns]) in aligned_bins(rank, &rank.input.profile.times, alignment) {
        let useful_ns = rank.useful_of(bin.values.iter().copied()) + bin.other_work_ns;
        windows.spread(begin_ns, end_ns, useful_ns, |at, ns| useful[at] += ns);
    }
    useful
}

/// Properties of a rank's contexts.
struct Known {
    is_wait: Vec<bool>,
    /// Index of the innermost chosen context on the path of each context.
    shown: Vec<Option<u16>>,
    /// Indices of the symptoms on the path of each context.
    symptoms: Vec<Vec<u16>>,
}

impl Known {
    /// Returns the properties of the contexts in some bins of threads of a class. `is_wait`:
    /// whether the time of each context is communication or waiting.
    fn of<'b>(
        rank: &Rank<'_>,
        tree: &mut CanonicalTree,
        plan: &Plan,
        threads: Threads,
        bins: impl IntoIterator<Item = &'b TimeBin>,
        is_wait: Vec<bool>,
    ) -> Self {
        let profile = &rank.input.profile;
        let nodes = &profile.tree.nodes;
        let mut is_present = vec![false; nodes.len()];
        for (node, _) in bins.into_iter().flat_map(|bin| &bin.values) {
            is_present[*node as usize] = true;
        }
        for (id, node) in nodes.iter().enumerate().rev() {
            if let (true, Some(parent)) = (is_present[id], node.parent) {
                is_present[parent as usize] = true;
            }
        }
        let places = tree.adopt(&profile.tree, threads, |node| is_present[node as usize]);
        let mut shown: Vec<Option<u16>> = Vec::with_capacity(nodes.len());
        let mut symptoms: Vec<Vec<u16>> = Vec::with_capacity(nodes.len());
        for (node, place) in nodes.iter().zip(&places) {
            let parent = node.parent.map(|parent| parent as usize);
            let own = place.and_then(|place| plan.chosen.binary_search(&place).ok());
            let outer = || parent.and_then(|parent| shown[parent]);
            shown.push(own.map(|own| own as u16).or_else(outer));
            let mut on_path = parent.map_or_else(Vec::new, |parent| symptoms[parent].clone());
            let is_own = |(_, contexts): &(u16, &Vec<NodeId>)| {
                place.is_some_and(|place| contexts.contains(&place))
            };
            on_path.extend((0..).zip(&plan.symptoms).find(is_own).map(|(own, _)| own));
            symptoms.push(on_path);
        }
        Self { is_wait, shown, symptoms }
    }

    fn in_symptoms(&self, bin: &TimeBin) -> Vec<(u16, u64)> {
        let of = |(node, ns): &(NodeId, u64)| {
            let ns = *ns;
            self.symptoms[*node as usize].iter().map(move |symptom| (*symptom, ns))
        };
        bin.values.iter().flat_map(of).collect()
    }

    fn parts(&self, bin: &TimeBin) -> impl Iterator<Item = Part> {
        let values = bin.values.iter().map(|(node, ns)| Part {
            shown: self.shown[*node as usize],
            ns: *ns,
            is_wait: self.is_wait[*node as usize],
        });
        let work = Part { shown: None, ns: bin.other_work_ns, is_wait: false };
        let calls = Part { shown: None, ns: bin.other_calls_ns, is_wait: true };
        values.chain([work, calls])
    }
}

#[cfg(test)]
mod tests;
