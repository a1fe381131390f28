//! Experiment: the contexts of one run's summary with exclusive times by class.

use plimsoll_summary::error::Error;
use plimsoll_summary::phrase::rank_count;
use plimsoll_summary::{
    Efficiency, FrameKind, Label, Loop, Loss, LossKind, NodeOfRun, check_indices, read_keys,
};

use crate::comparison::TimeClass;
use crate::computation_counts::ComputationCounts;
use crate::summary_keys::{ComparedNode, ComparedSummary};

/// Collectives of MPI in which ranks wait for a root or for lower ranks, and not all for all.
const ROOTED_COLLECTIVES: [&str; 8] = [
    "MPI_Bcast",
    "MPI_Exscan",
    "MPI_Gather",
    "MPI_Gatherv",
    "MPI_Reduce",
    "MPI_Scan",
    "MPI_Scatter",
    "MPI_Scatterv",
];

/// Number of classes of time.
pub const CLASSES: usize = TimeClass::ALL.len();

/// Frame of the summary, with the fields needed for matching.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExperimentFrame {
    /// Kind of the frame.
    pub kind: FrameKind,
    /// Function, as in the summary.
    pub function: String,
    /// Name of the source file without its folders.
    pub file: Option<String>,
    /// Source line.
    pub line: Option<u32>,
    /// Offset of a loop without a line.
    pub offset: Option<u64>,
    /// Module, as in the summary.
    pub module: String,
}

/// Context with its exclusive time.
#[derive(Clone, Copy, Debug)]
pub struct ExperimentNode {
    /// Index of its caller, less than its own.
    pub parent: Option<u32>,
    /// Index into the frames.
    pub frame: u32,
    /// Calls, the sum over ranks.
    pub calls: u64,
    /// Exclusive time by class, the sum over ranks, in seconds.
    pub own_s: [f64; CLASSES],
}

/// A loss of the run.
#[derive(Clone, Debug)]
pub struct ExperimentLoss {
    /// Kind of the loss.
    pub kind: LossKind,
    /// Fraction of the elapsed time.
    pub severity: f64,
    /// Seconds of run time.
    pub seconds: f64,
    /// Node of the symptom.
    pub symptom: u32,
    /// Node of the first cause.
    pub cause: Option<u32>,
    /// Rank list.
    pub slow_ranks: String,
}

/// A node of the job with more ranks than cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrowdedNode {
    /// Host name.
    pub host: String,
    /// Ranks on the node.
    pub ranks: u32,
    /// Number of cores on which they may run, less than `ranks`.
    pub cores: u32,
}

/// Run, reduced to the values that comparisons need.
#[derive(Clone, Debug, Default)]
pub struct Experiment {
    /// Name of the file, for messages.
    pub source: String,
    /// Index of the argument (file or folder) that named it.
    pub argument: usize,
    /// Path of the executable.
    pub executable: String,
    /// Arguments of the executable.
    pub arguments: Vec<String>,
    /// When it began.
    pub started: String,
    /// Run time in seconds.
    pub elapsed_s: f64,
    /// Ranks of the job. Sums over ranks are of all of them: measured ranks stand for the others.
    pub ranks: u32,
    /// Measured ranks, at most `ranks`.
    pub measured_ranks: u32,
    /// Application threads of all ranks.
    pub threads: u32,
    /// Number of nodes.
    pub nodes: u32,
    /// Node with the most ranks per core; `None` if no node has more ranks than cores.
    pub crowded: Option<CrowdedNode>,
    /// First line of the MPI library's version.
    pub mpi: Option<String>,
    /// Whether the run reached its regular end.
    pub complete: bool,
    /// Sampling period in seconds.
    pub period_s: f64,
    /// POP efficiencies.
    pub efficiency: Efficiency,
    /// Relative deviation of the iterations of the loop with the most time; `None` with fewer than
    /// five iterations.
    pub iteration_deviation: Option<f64>,
    /// Instructions and cycles in computation.
    pub counts: ComputationCounts,
    /// Losses, by falling severity.
    pub losses: Vec<ExperimentLoss>,
    /// Distinct frames.
    pub frames: Vec<ExperimentFrame>,
    /// Contexts, parents before children.
    pub nodes_of_tree: Vec<ExperimentNode>,
}

impl Experiment {
    /// Reads the values that a comparison needs from the JSON of a summary. `source` names the
    /// summary in messages; `argument` is the index of the command-line argument that named it.
    ///
    /// # Errors
    /// [`Error::WrongSchema`] for another version, [`Error::NotASummary`] otherwise.
    pub fn from_json(source: &str, argument: usize, json: &[u8]) -> Result<Self, Error> {
        let ComparedSummary { run, efficiency, losses, loops, tree, counters, .. } =
            read_keys(json)?;
        let indices = tree.nodes.iter().map(|node| (node.frame, node.parent));
        check_indices(tree.frames.len(), indices, &losses)?;
        let measured_ranks = run.ranks.max(1);
        let ranks = run.world_ranks.unwrap_or(0).max(measured_ranks);
        let factor = f64::from(ranks) / f64::from(measured_ranks);
        let counts = ComputationCounts::of(&counters, &tree.nodes, measured_ranks);
        let frames: Vec<_> = tree.frames.into_iter().map(frame).collect();
        Ok(Self {
            source: source.to_owned(),
            argument,
            executable: run.executable,
            arguments: run.arguments,
            started: run.started,
            elapsed_s: run.elapsed_s,
            ranks,
            measured_ranks,
            threads: (f64::from(run.threads) * factor).round() as u32,
            nodes: run.nodes.len() as u32,
            crowded: crowded_node(&run.nodes),
            mpi: run.mpi.library,
            complete: run.complete,
            period_s: run.period_us.asked * 1e-6,
            efficiency,
            iteration_deviation: iteration_deviation(&loops),
            counts: counts.times(factor),
            losses: losses.iter().map(loss).collect(),
            nodes_of_tree: nodes((&tree.nodes, &frames), measured_ranks, factor),
            frames,
        })
    }

    /// Returns ranks times elapsed time: p T_p.
    pub fn run_s(&self) -> f64 {
        f64::from(self.ranks) * self.elapsed_s
    }

    /// Returns the core time in seconds, to which the times of the tree are compared: p T_p, or, if
    /// that is more, the time of all contexts, which is summed over threads.
    pub fn core_s(&self) -> f64 {
        let of_contexts: f64 = self.nodes_of_tree.iter().flat_map(|node| node.own_s).sum();
        self.run_s().max(of_contexts)
    }

    /// Returns the name of the executable without folders.
    pub fn program(&self) -> &str {
        base_name(&self.executable)
    }
}

/// Returns a path without its folders.
pub fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn crowded_node(nodes: &[NodeOfRun]) -> Option<CrowdedNode> {
    let node = |node: &NodeOfRun| CrowdedNode {
        host: node.host.clone(),
        ranks: rank_count(&node.ranks) as u32,
        cores: node.cores,
    };
    let ranks_per_core = |node: &CrowdedNode| f64::from(node.ranks) / f64::from(node.cores);
    let crowded = nodes.iter().map(node).filter(|node| node.cores > 0 && node.ranks > node.cores);
    crowded.max_by(|one, other| ranks_per_core(one).total_cmp(&ranks_per_core(other)))
}

fn frame(frame: plimsoll_summary::Frame) -> ExperimentFrame {
    ExperimentFrame {
        kind: frame.kind,
        function: frame.function,
        file: frame.file.as_deref().map(|file| base_name(file).to_owned()),
        line: frame.line,
        offset: frame.offset,
        module: frame.module,
    }
}

fn loss(loss: &Loss) -> ExperimentLoss {
    ExperimentLoss {
        kind: loss.kind,
        severity: loss.severity,
        seconds: loss.seconds,
        symptom: loss.symptom.node,
        cause: loss.causes.first().map(|cause| cause.node),
        slow_ranks: loss.slow_ranks.clone(),
    }
}

/// Returns the exclusive times of all contexts: inclusive time minus that of the children, so that
/// the sum over the tree is the time of the run, even if frames are left out later. Sums over the
/// `ranks` measured ranks are multiplied by `factor`.
fn nodes(
    (tree, frames): (&[ComparedNode], &[ExperimentFrame]),
    ranks: u32,
    factor: f64,
) -> Vec<ExperimentNode> {
    let mut own_s: Vec<f64> = tree.iter().map(|node| finite(node.inclusive.sum_s)).collect();
    for node in tree {
        if let Some(parent) = node.parent {
            own_s[parent as usize] -= finite(node.inclusive.sum_s);
        }
    }
    let mut rooted: Vec<bool> = Vec::with_capacity(tree.len());
    for node in tree {
        let frame = &frames[node.frame as usize];
        let is_call = frame.kind == FrameKind::Mpi;
        let is_rooted = is_call && ROOTED_COLLECTIVES.contains(&&*frame.function);
        rooted.push(is_rooted || node.parent.is_some_and(|parent| rooted[parent as usize]));
    }
    let ranks = f64::from(ranks);
    let node = |((node, rooted), own_s): ((&ComparedNode, bool), f64)| ExperimentNode {
        parent: node.parent,
        frame: node.frame,
        calls: (node.calls as f64 * factor).round() as u64,
        own_s: by_class(node, rooted, own_s.max(0.0), ranks).map(|own_s| own_s * factor),
    };
    tree.iter().zip(rooted).zip(own_s).map(node).collect()
}

/// Splits the exclusive time of a context, which may lie in a rooted collective. Time that ranks
/// waited for a core is waiting. In a collective, the time of the rank with the shortest stay is
/// communication on every rank, the rest is waiting (PPoPP20, 5.3.2).
fn by_class(node: &ComparedNode, rooted: bool, own_s: f64, ranks: f64) -> [f64; CLASSES] {
    let mut split = [0.0; CLASSES];
    let delay_s = finite(node.counters.run_delay_s).clamp(0.0, own_s);
    let own_s = own_s - delay_s;
    let class = class_of(node.label);
    let is_collective = node.label == Label::CollectiveSynchronisation
        || rooted && class == TimeClass::Communication;
    if is_collective {
        let transfer_s = (finite(node.inclusive.min_s) * ranks).min(own_s);
        split[TimeClass::Communication as usize] = transfer_s;
        split[TimeClass::Waiting as usize] = own_s - transfer_s;
    } else {
        split[class as usize] = own_s;
    }
    split[TimeClass::Waiting as usize] += delay_s;
    split
}

fn class_of(label: Label) -> TimeClass {
    if label == Label::Computation {
        TimeClass::Work
    } else if label.is_a(Label::Io) {
        TimeClass::Io
    } else if label.is_a(Label::Wait) {
        TimeClass::Waiting
    } else {
        TimeClass::Communication
    }
}

/// Replaces infinite values, which JSON lacks: a sum may overflow.
fn finite(value: f64) -> f64 {
    if value.is_finite() { value } else { 0.0 }
}

/// Returns the deviation from the middle half of the durations: an occasional step that writes a
/// file is no noise.
fn iteration_deviation(loops: &[Loop]) -> Option<f64> {
    /// Minimum number of iterations for a deviation.
    const MIN_ITERATIONS: usize = 5;
    /// Width of the middle half of a normal distribution, in standard deviations.
    const MIDDLE_HALF: f64 = 1.349;
    let longest = loops
        .iter()
        .filter(|it| it.durations_s.len() >= MIN_ITERATIONS)
        .max_by(|one, other| one.fraction.total_cmp(&other.fraction))?;
    let mut times_s = longest.durations_s.clone();
    times_s.sort_by(f64::total_cmp);
    let quarter = |quarters: usize| times_s[(times_s.len() - 1) * quarters / 4];
    let deviation = (quarter(3) - quarter(1)) / MIDDLE_HALF / quarter(2);
    deviation.is_finite().then_some(deviation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_a_core_or_in_a_collective_is_waiting() {
        let split_in = |rooted: bool, label: &str, delay_s: f64| {
            let json = format!(
                r#"{{"parent":null,"frame":0,"label":"{label}","calls":1,
                "inclusive":{{"min_s":0.5,"sum_s":4.0}},"counters":{{"run_delay_s":{delay_s}}}}}"#
            );
            let node: ComparedNode = serde_json::from_str(&json).expect("a node");
            by_class(&node, rooted, 4.0, 2.0)
        };
        let split = |label, delay_s| split_in(false, label, delay_s);
        assert_eq!(split("computation", 0.0), [4.0, 0.0, 0.0, 0.0]);
        assert_eq!(split("computation", 1.5), [2.5, 1.5, 0.0, 0.0]);
        assert_eq!(split("io", 1.0), [0.0, 1.0, 0.0, 3.0]);
        // Even the shortest of two ranks spent 0.5 s in the collective.
        assert_eq!(split("collective_synchronisation", 1.0), [0.0, 3.0, 1.0, 0.0]);
        assert_eq!(split("communication", 1.0), [0.0, 1.0, 3.0, 0.0]);
        assert_eq!(split_in(true, "communication", 1.0), [0.0, 3.0, 1.0, 0.0], "in MPI_Bcast");
        assert_eq!(split_in(true, "wait_partner", 1.0), [0.0, 4.0, 0.0, 0.0]);
        assert_eq!(split("computation", 9.0), [0.0, 4.0, 0.0, 0.0], "no more than its own time");
    }
}
