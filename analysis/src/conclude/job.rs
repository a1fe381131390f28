//! What the summary says of the job as a whole, and of how it was measured.

use plimsoll_agent::marks::retreat::Reason;

use crate::agreement::Matching;
use crate::input::JobInfo;
use crate::job::JobTotals;
use crate::metrics::NS_PER_S;
use crate::summary::{Clock, Collection, Efficiency, Marks, MpiAbi, NodeOfRun, PeriodUs, Run};

pub(super) fn run(totals: &JobTotals, job: &JobInfo) -> Run {
    let nodes = totals.hosts.iter().map(|(host, at)| NodeOfRun {
        host: host.clone(),
        ranks: at.ranks.to_string(),
        cores: at.cores.len() as u32,
    });
    let samples = totals.counts.samples;
    let effective = totals.sampled_ns as f64 / samples.max(1) as f64 / 1e3;
    Run {
        executable: job.executable.clone(),
        arguments: job.arguments.clone(),
        job: job.job.clone(),
        started: job.started.clone(),
        elapsed_s: totals.elapsed_ns as f64 / NS_PER_S,
        ranks: totals.ranks.len(),
        threads: totals.threads,
        nodes: nodes.collect(),
        mpi: job.mpi.clone(),
        period_us: PeriodUs {
            asked: totals.period_ns as f64 / 1e3,
            effective: (effective > 0.0).then_some(effective),
        },
        clock: match totals.clock.as_str() {
            "wall" => Clock::Wall,
            "timer" => Clock::Timer,
            _ => Clock::Cpu,
        },
        complete: job.complete && totals.unsound.is_empty(),
        ended: job.ended.clone(),
        settings: job.settings.clone(),
    }
}

pub(super) fn collection(totals: &JobTotals) -> Collection {
    let counts = &totals.counts;
    Collection {
        samples: counts.samples,
        lost: counts.lost,
        truncated: counts.truncated,
        marks: marks(totals),
        mpi_calls: counts.mpi_calls,
        spool_bytes: counts.spool_bytes,
        record_bytes: counts.record_bytes,
        sampling_cpu_s: counts.sampling_cpu_ns as f64 / NS_PER_S,
        collector_cpu_s: counts.collector_cpu_ns as f64 / NS_PER_S,
        structure_cpu_s: counts.structure_cpu_ns.0 as f64 / NS_PER_S,
        late_structure_cpu_s: counts.structure_cpu_ns.1 as f64 / NS_PER_S,
        // Known only when this analysis is over.
        finalize_s: None,
        memory_bytes: counts.memory_bytes,
        unsampled_threads: counts.unsampled_threads,
    }
}

fn marks(totals: &JobTotals) -> Marks {
    let [planted, hit, stale, verified, mismatched] = totals.counts.marks;
    let reasons = totals.marks_off.iter().filter_map(|(number, ranks)| {
        let reason = Reason::from_number(*number)?;
        let everywhere = ranks.len() == totals.ranks.len();
        Some(if everywhere { reason.to_string() } else { format!("{reason} (rank {ranks})") })
    });
    let reasons: Vec<String> = reasons.collect();
    let off_reason = (!reasons.is_empty()).then(|| reasons.join("; "));
    Marks { planted, hit, stale, verified, mismatched, off_reason }
}

/// POP's efficiencies: parallel = load balance x communication.
pub(super) fn efficiency(totals: &JobTotals, job: &JobInfo) -> Efficiency {
    let (mean_ns, max_ns) = (totals.useful.mean(totals.ranks.len()), totals.useful.max as f64);
    let elapsed_ns = totals.elapsed_ns as f64;
    let of = |part: f64, whole: f64| (whole > 0.0).then(|| (part / whole).clamp(0.0, 1.0));
    if job.mpi.abi == MpiAbi::None {
        return Efficiency::default();
    }
    Efficiency {
        parallel: of(mean_ns, elapsed_ns),
        load_balance: of(mean_ns, max_ns),
        communication: of(max_ns, elapsed_ns),
    }
}

pub(super) fn notes(totals: &JobTotals, matching: &Matching, job: &JobInfo) -> Vec<String> {
    let mut notes = job.notes.clone();
    match matching {
        Matching::Phases => {}
        Matching::Joined(_) => notes.push(
            "In part of the run the ranks synchronised at places that do not correspond: each such part is \
             one phase."
                .into(),
        ),
        Matching::WholeRun => notes.push(
            "The ranks did not see the same synchronisations: the whole run is one phase.".into(),
        ),
    }
    if !totals.unsound.is_empty() {
        notes.push(format!(
            "The profile of rank {} contradicts itself and was left out.",
            totals.unsound
        ));
    }
    for (trouble, ranks) in &totals.spool_troubles {
        notes.push(format!("The spool of rank {ranks} is incomplete: {trouble}."));
    }
    if !totals.stepped_aside.is_empty() {
        notes.push(format!(
            "The application uses the sampling signal itself on rank {}: sampling stepped aside \
             there.",
            totals.stepped_aside
        ));
    }
    notes
}
