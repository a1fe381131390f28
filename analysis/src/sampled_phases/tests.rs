use std::collections::BTreeMap;

use plimsoll_calls::id_of;
use plimsoll_collector::profile::{
    NodeId, NodeValue, Passage, PhaseProfile, ProcessProfile, Series, Sight, SyncReturns, SyncSite,
};

use crate::diagnose::diagnose_alone;
use crate::input::{Cost, RankClock, RankInput};
use crate::summary::{ClockMethod, Summary};
use crate::synthetic_run::{BEGIN_NS, Contexts, MS, diagnose_on, job};

const PERIOD: u64 = 4 * MS;
/// Duration of a synchronisation in which a rank does not wait, in nanoseconds.
const INSTANT: u64 = MS / 100;

/// Work of a rank before a synchronisation, and the site at which it then calls MPI.
struct Step {
    work: Vec<(&'static str, u64)>,
    site: &'static str,
}

/// End of a time span, context of the rank in it, and, if it waits, the number of the site and of
/// its call.
type Stretch = (u64, NodeId, Option<(u32, usize)>);

/// Ranks known from samples only.
struct Sampled {
    /// Steps of each rank; all ranks meet at the end of each step.
    ranks: Vec<Vec<Step>>,
    /// Nanoseconds by which each rank's clock is ahead at the begin, and its drift in ppm.
    clocks: Vec<(i64, f64)>,
    /// Number of samples that each one stands for; of these, there is one per period.
    stride: u32,
    ranks_per_row: u32,
}

/// Returns the address of a site's call in the code.
fn address(site: &str) -> u64 {
    site.bytes().fold(1, |sum, byte| (sum * 31 + u64::from(byte)) & 0xffff) << 8
}

impl Sampled {
    /// Builds a start-up, `steps` steps with two synchronisations each, output, and an end.
    fn stages(ranks: u32, steps: u32) -> Self {
        let step = |work: &[(&'static str, u64)], site| Step { work: work.to_vec(), site };
        let of_rank = |rank: u32| {
            let is_last = u64::from(rank + 1 == ranks);
            let is_first = u64::from(rank == 0);
            let mut run =
                vec![step(&[("main/start_up", (30 + 20 * is_first) * MS)], "main/MPI_Barrier@1")];
            for at in 0..u64::from(steps) {
                // All steps have different lengths.
                let long = (10 + 20 * is_last) * MS + at * 17 % 5 * MS / 10;
                run.push(step(&[("main/assemble", long)], "main/MPI_Allreduce@2"));
                run.push(step(&[("main/solve", (10 + 5 * is_first) * MS)], "main/MPI_Barrier@3"));
            }
            run.push(step(&[("main/output", 1 + 50 * MS * is_first)], "main/MPI_Barrier@4"));
            run.push(step(&[("main/tidy_up", 20 * MS)], ""));
            run
        };
        let clocks = vec![(0, 0.0); ranks as usize];
        Self { ranks: (0..ranks).map(of_rank).collect(), clocks, stride: 1, ranks_per_row: 2 }
    }

    /// Builds steps in which rows of ranks synchronise several times, and all ranks once. In each
    /// row another rank takes longer each time, so all ranks work equally long.
    fn rows(rows: u32, ranks_per_row: u32, steps: u32) -> Self {
        let of_rank = |rank: u32| {
            let mut run = Vec::new();
            let (row, last_row) = (u64::from(rank / ranks_per_row), u64::from(rows - 1));
            for at in 0..steps {
                let shift = 11 + u64::from(at % 4) * 9;
                for turn in 0..ranks_per_row {
                    let is_slow = (rank + at + turn).is_multiple_of(ranks_per_row);
                    // Rows differ in their times, and none of them in all of its work.
                    let late = if turn == 0 { shift * row } else { 0 };
                    let ns = (if is_slow { 60 } else { 20 } + late) * MS;
                    let work = vec![("main/relax", ns)];
                    run.push(Step { work, site: "main/in_rows/MPI_Allreduce@2" });
                }
                // Without any waiting, no sample would show the barrier.
                let more = if rank == 0 { 12 } else { 0 };
                let rest = 38 * last_row - shift * row;
                let work = vec![("main/advance", (20 + more + rest) * MS)];
                run.push(Step { work, site: "main/MPI_Barrier@3" });
            }
            run.push(Step { work: vec![("main/tidy_up", 20 * MS)], site: "" });
            run
        };
        let ranks = rows * ranks_per_row;
        let clocks = vec![(0, 0.0); ranks as usize];
        Self { ranks: (0..ranks).map(of_rank).collect(), clocks, stride: 1, ranks_per_row }
    }

    /// Returns the times at which a rank is released, since the begin: by all ranks, or at a site
    /// in `in_rows` by the ranks of its row.
    fn sync_returns(&self, rank: u32) -> Vec<u64> {
        let mut now = vec![0; self.ranks.len()];
        let mut sync_returns = Vec::new();
        for step in 0..self.ranks[0].len() {
            for (now, steps) in now.iter_mut().zip(&self.ranks) {
                *now += steps[step].work.iter().map(|(_, ns)| ns).sum::<u64>();
            }
            let in_rows = self.ranks[0][step].site.contains("in_rows");
            let length = if in_rows { self.ranks_per_row as usize } else { now.len() };
            for row in now.chunks_mut(length) {
                let release = row.iter().max().copied().unwrap_or(0) + INSTANT;
                row.fill(release);
            }
            sync_returns.push(now[rank as usize]);
        }
        sync_returns
    }

    fn input(&self, rank: u32) -> RankInput {
        let (ahead, ppm) = self.clocks[rank as usize];
        RankInput {
            rank,
            host: format!("node{ahead}"),
            cores: vec![0, 1],
            clock: RankClock { id: format!("{ahead}"), exchanges: Vec::new() },
            profile: self.profile(rank, |ns: u64| (ns as f64 * (1.0 + ppm / 1e6)) as u64, ahead),
            cost: Cost::default(),
            spool_trouble: None,
        }
    }

    /// Returns the samples of a rank. They come once per period, with a different delay on every
    /// rank.
    fn profile(&self, rank: u32, clock: impl Fn(u64) -> u64, ahead: i64) -> ProcessProfile {
        let mut contexts = Contexts::default();
        contexts.node("main");
        let steps = &self.ranks[rank as usize];
        let sync_returns = self.sync_returns(rank);
        let mut stretches: Vec<Stretch> = Vec::new();
        let mut sites: Vec<SyncSite> = Vec::new();
        let mut now = 0;
        for (number, (step, release)) in steps.iter().zip(&sync_returns).enumerate() {
            for (path, ns) in &step.work {
                now += ns;
                stretches.push((now, contexts.node(path), None));
            }
            now = *release;
            let waits = !step.site.is_empty();
            let node = contexts.node(if waits { step.site } else { "main" });
            let site = waits.then(|| {
                let chain = vec![address(step.site)];
                let call =
                    if step.site.contains("Barrier") { "MPI_Barrier" } else { "MPI_Allreduce" };
                let site = SyncSite { chain, call: id_of(call), node };
                let known = sites.iter().position(|known| *known == site);
                known.unwrap_or_else(|| {
                    sites.push(site);
                    sites.len() - 1
                }) as u32
            });
            stretches.push((now, node, site.map(|site| (site, number))));
        }
        let elapsed = now;
        let (sites_of_all, stride) = (sites.clone(), self.stride);
        let mut series =
            Series { is_whole: true, stride, sites: sites_of_all, ..Series::default() };
        let mut seen = vec![false; sites.len()];
        let mut last: Option<(u64, usize)> = None;
        let mut stamp = u64::from(rank) * 1_370_000 % PERIOD + 1000;
        let mut at = 0;
        while stamp < elapsed {
            while stretches[at].0 <= stamp {
                at += 1;
            }
            let (_, node, inside) = stretches[at];
            let before = last.map_or(0, |(before, _)| before);
            let from = last.map_or(0, |(_, from)| from);
            // All calls between two samples, without the call of the first sample.
            let calls = stretches[from..at].iter().skip(usize::from(at > from));
            let mut calls: Vec<u64> = calls
                .filter_map(|(.., site)| Some(sites[site.as_ref()?.0 as usize].chain[0] - 5))
                .collect();
            calls.sort_unstable();
            let way = (!calls.is_empty()).then(|| {
                series.passages.push(Passage { outer: Vec::new(), calls });
                series.ways.push(vec![series.passages.len() as u32 - 1]);
                series.ways.len() as u32 - 1
            });
            let was = last.and_then(|(_, from)| stretches[from].2);
            if let Some((site, _)) = inside {
                seen[site as usize] = true;
            }
            let middle = if last.is_some() { stamp - (stamp - before) / 2 } else { 0 };
            series.sights.push(Sight {
                earliest_ns: clock(before),
                at_ns: clock(middle),
                latest_ns: clock(stamp),
                last_ns: clock(stamp),
                node,
                begun: Vec::new(),
                samples: 1,
                run_delay_ns: 0,
                inside: inside.map(|(site, _)| site),
                goes_on: inside.is_some() && inside == was,
                way,
            });
            last = Some((stamp, at));
            stamp += PERIOD;
        }
        self.hide_unseen(&mut series, &seen);
        let value = NodeValue { exclusive_ns: clock(elapsed), samples: 1, ..NodeValue::default() };
        let end = contexts.node("main/MPI_Finalize");
        let whole = PhaseProfile {
            ends_in: Some(end),
            instances: 1,
            duration_ns: clock(elapsed),
            values: vec![(0, value)],
            ..PhaseProfile::default()
        };
        let begin_ns = BEGIN_NS.wrapping_add_signed(ahead);
        ProcessProfile {
            tree: contexts.tree,
            phases: vec![whole],
            sync_returns: Some(SyncReturns {
                begin_ns,
                ends: vec![(0, begin_ns + clock(elapsed))],
            }),
            series: Some(series),
            threads: 1,
            syncs: 1,
            elapsed_ns: clock(elapsed),
            period_ns: PERIOD,
            kept_period_ns: PERIOD / u64::from(self.stride),
            effective_period_ns: PERIOD,
            clock: "wall".to_owned(),
            ..ProcessProfile::default()
        }
    }

    /// Removes the sites at which no sample shows the rank.
    fn hide_unseen(&self, series: &mut Series, seen: &[bool]) {
        let numbers: BTreeMap<u32, u32> =
            (0..).zip(seen).filter(|(_, seen)| **seen).map(|(at, _)| at).zip(0..).collect();
        let sites = std::mem::take(&mut series.sites);
        series.sites = numbers.keys().map(|at| sites[*at as usize].clone()).collect();
        for sight in &mut series.sights {
            sight.inside = sight.inside.map(|site| numbers[&site]);
        }
    }

    fn inputs(&self) -> Vec<RankInput> {
        (0..self.ranks.len() as u32).map(|rank| self.input(rank)).collect()
    }
}

fn instances(summary: &Summary) -> Vec<(u64, String)> {
    let end = |path: &Option<Vec<crate::summary::Frame>>| match path {
        Some(path) => path.last().map_or(String::new(), |frame| frame.function.clone()),
        None => String::new(),
    };
    let phases = summary.phases.iter();
    phases
        .map(|it| (it.instances, format!("{}>{}", end(&it.begins_after), end(&it.ends_in))))
        .collect()
}

fn stages_of(steps: u64) -> Vec<(u64, String)> {
    [
        (1, ">MPI_Barrier"),
        (1, "MPI_Barrier>MPI_Allreduce"),
        (steps, "MPI_Allreduce>MPI_Barrier"),
        (steps - 1, "MPI_Barrier>MPI_Allreduce"),
        (1, "MPI_Barrier>MPI_Barrier"),
        (1, "MPI_Barrier>MPI_Finalize"),
    ]
    .map(|(instances, ends)| (instances, ends.to_owned()))
    .to_vec()
}

#[test]
fn a_run_of_known_structure_has_exactly_its_phases() {
    let subject = Sampled::stages(4, 30);
    let unseen = subject.inputs().pop().unwrap().profile.series.unwrap();
    assert!(unseen.sites.len() < 4, "the slowest rank is seen at all sites: {:?}", unseen.sites);
    let one = diagnose_alone(subject.inputs(), &job()).unwrap();
    assert_eq!(instances(&one), stages_of(30));
    assert_eq!(one.notes, Vec::<String>::new());
    // All measured time is in a phase.
    let whole_s: f64 = one.phases.iter().map(|phase| phase.duration_s).sum();
    assert!((whole_s - one.run.elapsed_s).abs() < 1e-6, "{whole_s} of {}", one.run.elapsed_s);
    // 20 ms minus the mean over the ranks, 29 times.
    let loss = &one.losses[0];
    assert!((loss.seconds - 0.015 * 29.0).abs() < 0.03, "{loss:?}");
    // The result does not depend on the placement of ranks on processes.
    for processes in [2, 3] {
        let found = diagnose_on(processes, &subject.inputs(), &job());
        assert_eq!(found, one, "{processes} processes");
    }
}

/// Compares offsets, in microseconds at the begin, and phases with the truth.
#[track_caller]
fn assert_aligned(subject: &Sampled, steps: u64) {
    let summary = diagnose_alone(subject.inputs(), &job()).unwrap();
    assert_eq!(instances(&summary), stages_of(steps));
    assert_eq!(summary.clocks.method, ClockMethod::Samples);
    let found = summary.clocks.offsets_us.iter().zip(&summary.clocks.drift_ppm);
    for ((offset_us, drift_ppm), (ahead, ppm)) in found.zip(&subject.clocks) {
        let end_us = summary.run.elapsed_s * (drift_ppm - ppm);
        let wrong_us = offset_us - *ahead as f64 / 1e3;
        for wrong_us in [wrong_us, wrong_us + end_us] {
            assert!(wrong_us.abs() < PERIOD as f64 / 1e3, "{wrong_us}: {:?}", summary.clocks);
        }
    }
}

#[test]
fn clocks_that_are_apart_are_aligned_by_samples_alone() {
    let mut subject = Sampled::stages(4, 30);
    subject.clocks =
        vec![(0, 0.0), (3_700_000_000, 0.0), (-250_000_000, 0.0), (3_700_000_000, 0.0)];
    assert_aligned(&subject, 30);
    // The reference is the rank that no sample shows waiting.
    subject.ranks.rotate_right(1);
    assert_aligned(&subject, 30);
}

#[test]
fn a_clock_that_drifts_is_followed() {
    // Two minutes: a drift of 100 ppm adds up to three periods.
    let mut subject = Sampled::stages(3, 3000);
    subject.clocks = vec![(0, 0.0), (-250_000_000, 100.0), (3_700_000_000, -60.0)];
    assert_aligned(&subject, 3000);
}

#[test]
fn samples_of_which_few_were_kept_are_as_far_apart_as_they_are() {
    let mut subject = Sampled::stages(4, 30);
    let whole = diagnose_alone(subject.inputs(), &job()).unwrap();
    for stride in [4, 64] {
        subject.stride = stride;
        let thinned = diagnose_alone(subject.inputs(), &job()).unwrap();
        assert_eq!(instances(&thinned), instances(&whole), "one of {stride}");
        assert_eq!(thinned.losses, whole.losses, "one of {stride}");
        let [note] = &thinned.notes[..] else { panic!("{:?}", thinned.notes) };
        assert!(note.contains(&format!("one of every {stride} samples")), "{note}");
    }
    subject.stride = 64;
    subject.clocks = vec![(0, 0.0), (3_700_000_000, 0.0), (-250_000_000, 0.0), (7_000, 0.0)];
    assert_aligned(&subject, 30);
}

#[test]
fn programs_that_differ_meet_at_sites_of_their_own() {
    let mut subject = Sampled::stages(4, 30);
    subject.clocks[3] = (1_000_000_000, 0.0);
    for (number, step) in subject.ranks[3].iter_mut().enumerate() {
        // The rank is late in every second step only, so that samples also show it waiting.
        if step.site == "main/MPI_Allreduce@2" {
            step.site = "main/ocean/MPI_Allreduce@9";
            step.work[0].1 = if number % 4 == 1 { 2 * MS } else { 40 * MS };
        }
    }
    let summary = diagnose_alone(subject.inputs(), &job()).unwrap();
    assert_eq!(instances(&summary), stages_of(30));
    let wrong_us = summary.clocks.offsets_us[3] - 1e6;
    assert!(wrong_us.abs() < PERIOD as f64 / 1e3, "{:?}", summary.clocks);
}

#[test]
fn what_some_ranks_leave_is_no_synchronisation_of_all() {
    // Ranks 2 and 3 are released later from the calls in between: each half has its own.
    let mut subject = Sampled::stages(4, 30);
    for rank in &mut subject.ranks {
        rank.retain(|step| step.site != "main/MPI_Barrier@3");
    }
    let mut inputs = subject.inputs();
    let shift = |ns: &mut u64, by: u64| *ns += by;
    for input in &mut inputs[2..] {
        let series = input.profile.series.as_mut().unwrap();
        let first = series.sights.iter().position(|sight| sight.at_ns > 60 * MS).unwrap();
        // From there on all activity of the rank is 13 ms later.
        for sight in &mut series.sights[first..] {
            for ns in
                [&mut sight.earliest_ns, &mut sight.at_ns, &mut sight.latest_ns, &mut sight.last_ns]
            {
                shift(ns, 13 * MS);
            }
        }
        shift(&mut input.profile.elapsed_ns, 13 * MS);
    }
    let summary = diagnose_alone(inputs, &job()).unwrap();
    let most = summary.phases.iter().map(|phase| phase.instances).max();
    assert!(most.is_some_and(|most| most <= 2), "{:?}", instances(&summary));
}

#[test]
fn ranks_that_leave_a_site_together_are_a_subgroup() {
    for (rows, ranks_per_row) in [(2, 2), (3, 4)] {
        let mut subject = Sampled::rows(rows, ranks_per_row, 20);
        // Each turn costs a row 40 ms, less the mean over its ranks.
        let turns = 20.0 * f64::from(ranks_per_row);
        let expected_s = turns * 0.040 * (1.0 - 1.0 / f64::from(ranks_per_row));
        for clocks in [false, true] {
            if clocks {
                subject.clocks[1] = (3_700_000_000, 0.0);
                subject.clocks[rows as usize] = (-250_000_000, 0.0);
            }
            let summary = diagnose_alone(subject.inputs(), &job()).unwrap();
            let worst = &summary.losses[0];
            let symptom = worst.symptom.path.last().map(|frame| frame.function.as_str());
            assert_eq!(symptom, Some("MPI_Allreduce"), "{:#?}", summary.losses);
            let apart = (worst.seconds - expected_s).abs() / expected_s;
            assert!(apart < 0.1, "{rows} {ranks_per_row} {}: {expected_s}", worst.seconds);
            assert_eq!(summary.notes, Vec::<String>::new());
        }
    }
}

#[test]
fn samples_that_are_missing_leave_one_phase_and_a_note() {
    let mut inputs = Sampled::stages(4, 30).inputs();
    inputs[2].profile.series = Some(Series::default());
    let summary = diagnose_alone(inputs, &job()).unwrap();
    assert_eq!(instances(&summary), [(1, ">MPI_Finalize".to_owned())]);
    assert_eq!(summary.notes.len(), 1, "{:?}", summary.notes);
}
