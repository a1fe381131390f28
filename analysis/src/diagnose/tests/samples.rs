//! Ranks that are chosen at random to keep their samples, and what a digest says of all from them.

use super::*;
use crate::input::JobInfo;
use crate::population::sampled_ranks;
use crate::ranks::RankSet;
use crate::settings::{SamplingRequest, TRACE, Trace};
use crate::spooled::Kept;
use crate::summary::{Population, Quantity};

const RANKS: u32 = 128;

/// Pseudo-random numbers from 0 to 99, by rank and step.
fn noise(rank: u32, step: u32) -> u64 {
    let mixed = u64::from(rank * 97 + step * 31 + 7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 40) % 100
}

/// Ranks of three kinds in forty steps: rank 0 works for 200 ms, 31 ranks for 100 ms and the others
/// for 150 ms, with noise of `noise_ms` milliseconds. In the last ten steps, the noise is
/// `late_factor` times as large.
fn kinds(noise_ms: u64, late_factor: u64) -> Subject {
    let mut subject = Subject::new(RANKS);
    subject.step(BARRIER, |_| vec![]);
    for step in 0..40 {
        let noise_ms = if step < 30 { noise_ms } else { noise_ms * late_factor };
        subject.step(BARRIER, |rank| {
            let (path, work_ms) = match rank {
                0 => ("main/step/lead", 200),
                1..32 => ("main/step/solve", 100),
                _ => ("main/step/relax", 150),
            };
            let spread_ns = noise(rank, step) * noise_ms * MS / 100;
            vec![doing(path, work_ms * MS + spread_ns), doing("main/step/pack", 30 * MS)]
        });
    }
    subject
}

fn sampling(request: &str) -> JobInfo {
    let settings = [(TRACE.to_owned(), format!("sample:{request}"))].into();
    JobInfo { settings, ..job() }
}

fn diagnosed(subject: &Subject, job: &JobInfo) -> Summary {
    checked(diagnose_alone(subject.inputs(), job).unwrap())
}

/// The digest of a spool that holds some ranks of a job alone.
fn digest_of(subject: &Subject, population: &Population, ranks: &RankSet) -> Summary {
    let inputs = ranks.iter().map(|rank| subject.input(rank)).collect();
    let job = JobInfo { population: Some(population.clone()), ..sampling("error=3%") };
    checked(diagnose_alone(inputs, &job).unwrap())
}

fn population(summary: &Summary) -> &Population {
    summary.population.as_ref().expect("ranks are sampled")
}

/// Means over all ranks of a quantity by name of the context, in seconds.
fn truths(summary: &Summary, quantity: Quantity) -> Vec<(String, f64)> {
    let time = |at: u32| {
        let node = &summary.tree.nodes[at as usize];
        match quantity {
            Quantity::Exclusive => node.exclusive.mean_s,
            _ => node.inclusive.mean_s,
        }
    };
    (0..summary.tree.nodes.len() as u32)
        .map(|at| (path(&summary.tree.path(at)), time(at)))
        .collect()
}

#[test]
fn strata_are_clusters_and_samples_are_small() {
    let summary = diagnosed(&kinds(4, 1), &sampling("confidence=95%,error=3%"));
    let population = population(&summary);
    let ranks: Vec<&str> = population.strata.iter().map(|it| it.ranks.as_str()).collect();
    assert_eq!(ranks, ["0", "1-31", "32-127"]);
    assert_eq!((population.confidence, population.error), (0.95, 0.03));
    let sampled = sampled_ranks(population);
    assert!(sampled.contains(0), "its stratum is whole: {sampled}");
    assert!((5..64).contains(&sampled.len()), "{sampled}");
    for stratum in &population.strata {
        let (all, some): (RankSet, RankSet) =
            (stratum.ranks.parse().unwrap(), stratum.sampled.parse().unwrap());
        assert!(some.iter().all(|rank| all.contains(rank)), "{stratum:?}");
        assert!(some.len() >= 2.min(all.len()), "{stratum:?}");
    }
    assert!(population.achieved_error.unwrap() <= 0.03, "{population:?}");
    // Work is 40 times the mean of the kinds, 30 ms, and 2 ms of noise.
    let work = &population.metrics[0];
    assert_eq!((work.quantity, work.node), (Quantity::Work, None));
    let truth = 40.0 * ((200.0 + 31.0 * 100.0 + 96.0 * 150.0) / 128.0 + 30.0 + 2.0) / 1e3;
    assert!((work.time.mean_s - truth).abs() < 0.01, "{} {truth}", work.time.mean_s);
    let total: f64 = population.windows.iter().map(|window| window.time.mean_s).sum();
    assert!((total - work.time.mean_s).abs() < 1e-6 * total, "windows partition the run");
    assert!(population.windows.len() > 3, "{:?}", population.windows);
}

/// The variance of a stratum in square seconds is that of the sums that its ranks work.
#[test]
fn variances_are_those_of_the_ranks() {
    let summary = diagnosed(&kinds(4, 1), &sampling("error=3%"));
    let works: Vec<f64> =
        (32..RANKS).map(|rank| (0..40).map(|step| noise(rank, step) as f64 * 4e-5).sum()).collect();
    let mean = works.iter().sum::<f64>() / works.len() as f64;
    let squares: f64 = works.iter().map(|work| (work - mean).powi(2)).sum();
    let truth = squares / (works.len() - 1) as f64;
    let found = population(&summary).strata[2].variance;
    assert!((found - truth).abs() < 1e-3 * truth, "{found} {truth}");
    assert_eq!(population(&summary).strata[0].variance, 0.0);
}

#[test]
fn the_choice_follows_from_the_seed() {
    let subject = kinds(20, 1);
    let ranks = |request: &str| {
        let summary = diagnosed(&subject, &sampling(request));
        (population(&summary).seed, sampled_ranks(population(&summary)))
    };
    let (seed, chosen) = ranks("error=3%");
    assert_eq!(ranks("error=3%"), (seed, chosen.clone()), "the same in each digest");
    assert_eq!(ranks(&format!("error=3%,seed={seed}")), (seed, chosen.clone()));
    let (other, others) = ranks("error=3%,seed=7");
    assert_eq!((other, others.len()), (7, chosen.len()));
    assert!(others != chosen);
    let later = JobInfo { started: "2026-01-01T00:00:01+00:00".into(), ..sampling("error=3%") };
    assert!(population(&diagnosed(&subject, &later)).seed != seed, "another job, another choice");
}

#[test]
fn however_ranks_lie_on_nodes_the_sample_is_the_same() {
    let (subject, job) = (kinds(4, 1), sampling("error=3%"));
    let alone = diagnosed(&subject, &job);
    let together = diagnose_on(5, &subject.inputs(), &job);
    assert_eq!(together.population, alone.population);
}

/// The variance grows in the last quarter of the run: its windows decide the size of the sample.
#[test]
fn windows_with_more_variance_require_more_ranks() {
    let numbers = |late_factor| {
        let summary = diagnosed(&kinds(3, late_factor), &sampling("error=2%"));
        let population = population(&summary);
        let required: Vec<u32> =
            population.windows.iter().map(|window| window.time.required.unwrap()).collect();
        assert!(population.windows.iter().all(|window| window.time.error.unwrap() <= 0.02));
        (required, population.metrics[0].time.required.unwrap(), sampled_ranks(population).len())
    };
    let (even, ..) = numbers(1);
    let (late, of_run, all) = numbers(20);
    let first = late.len() / 2;
    assert!(late[..first].iter().max() <= even.iter().max(), "{late:?} {even:?}");
    let most = *late.iter().max().unwrap();
    assert!(most > 2 * late[0] && late[late.len() - 2] > 2 * late[0], "{late:?}");
    assert!(all >= most && most > of_run, "{all} {late:?} {of_run}");
}

#[test]
fn a_digest_of_the_sampled_ranks_estimates_the_means_of_all() {
    let subject = kinds(20, 2);
    let (mut held, mut all) = (0, 0);
    for seed in 0..8 {
        let job = diagnosed(&subject, &sampling(&format!("error=3%,seed={seed}")));
        let sampled = sampled_ranks(population(&job));
        assert!(sampled.len() < RANKS / 2, "{sampled}");
        let digest = digest_of(&subject, population(&job), &sampled);
        let found = population(&digest);
        assert_eq!(found.strata, population(&job).strata);
        assert_eq!((found.seed, found.confidence, found.error), (seed, 0.95, 0.03));
        assert!(found.achieved_error.unwrap() < 0.04, "{:?}", found.achieved_error);
        // Metrics of the population, and the contexts in the tree.
        let truth = |quantity, of: &str| {
            let all = truths(&job, quantity);
            all.into_iter().find(|(name, _)| name == of).expect("all have it").1
        };
        let work = &found.metrics[0];
        let exact = population(&job).metrics[0].time.mean_s;
        let bounds = (work.time.low_s.unwrap(), work.time.high_s.unwrap());
        assert!(bounds.0 <= work.time.mean_s && work.time.mean_s <= bounds.1);
        held += u32::from(bounds.0 <= exact && exact <= bounds.1);
        all += 1;
        for at in 0..digest.tree.nodes.len() {
            let node = &digest.tree.nodes[at];
            let name = path(&digest.tree.path(at as u32));
            for (quantity, metric) in
                [(Quantity::Inclusive, node.inclusive), (Quantity::Exclusive, node.exclusive)]
            {
                let Some(estimate) = metric.estimate else {
                    assert!(metric.mean_s < 0.001 * digest.run.elapsed_s, "{name}");
                    continue;
                };
                let exact = truth(quantity, &name);
                held += u32::from(estimate.low_s <= exact && exact <= estimate.high_s);
                all += 1;
            }
        }
        // Half of the relax ranks may be sampled, or one in ten: the unweighted mean is another.
        let relax = digest
            .tree
            .nodes
            .iter()
            .position(|node| digest.tree.frames[node.frame as usize].function == "relax");
        let relax = &digest.tree.nodes[relax.expect("it is sampled")].inclusive;
        assert!(relax.estimate.unwrap().mean_s != relax.mean_s);
    }
    assert!(f64::from(held) >= 0.95 * f64::from(all), "{held} of {all}");
    assert!(all > 60, "{all}");
}

#[test]
fn what_is_missing_of_the_sample_is_not_made_up() {
    let subject = kinds(20, 2);
    let job = diagnosed(&subject, &sampling("error=3%"));
    let population_of_job = population(&job);
    let sampled = sampled_ranks(population_of_job);
    // One rank of the last stratum is missing: the others still stand for it.
    let without: RankSet = sampled.iter().take(sampled.len() as usize - 1).collect();
    let digest = digest_of(&subject, population_of_job, &without);
    assert_eq!(sampled_ranks(population(&digest)), without);
    assert!(population(&digest).metrics[0].time.low_s.is_some());
    // All of a stratum are missing.
    let some: RankSet = sampled.iter().filter(|rank| *rank < 32).collect();
    let digest = digest_of(&subject, population_of_job, &some);
    let found = population(&digest);
    assert_eq!((found.achieved_error, found.metrics.len(), found.windows.len()), (None, 0, 0));
    assert!(digest.tree.nodes.iter().all(|node| node.inclusive.estimate.is_none()));
    // Ranks that were not chosen, as in a spool that was not reduced, count for nothing.
    let more: RankSet = sampled.union(&(32..64).collect());
    let digest = digest_of(&subject, population_of_job, &more);
    assert_eq!(population(&digest).strata, population_of_job.strata);
}

#[test]
fn a_damaged_note_estimates_nothing() {
    let subject = kinds(4, 1);
    let job = diagnosed(&subject, &sampling("error=3%"));
    let sound = population(&job);
    let sampled = sampled_ranks(sound);
    let damages: [fn(&mut Population); 5] = [
        |it| it.confidence = 5.0,
        |it| it.error = f64::NAN,
        |it| it.strata.clear(),
        |it| it.strata[1].ranks = "many".into(),
        |it| it.strata[1].sampled = "0-100".into(),
    ];
    for damage in damages {
        let mut damaged = sound.clone();
        damage(&mut damaged);
        assert_eq!(digest_of(&subject, &damaged, &sampled).population, None, "{damaged:?}");
    }
}

#[test]
fn ranks_are_sampled_only_if_all_are_known_and_that_is_asked_for() {
    let subject = kinds(4, 1);
    let incomplete = JobInfo { complete: false, ..sampling("error=3%") };
    assert_eq!(diagnosed(&subject, &incomplete).population, None);
    let clusters = JobInfo { settings: [(TRACE.to_owned(), "clusters".into())].into(), ..job() };
    assert_eq!(diagnosed(&subject, &clusters).population, None);
    let alone = diagnose_alone(vec![subject.input(3)], &sampling("error=3%")).unwrap();
    assert_eq!(alone.population, None);
}

#[test]
fn what_is_kept_follows_the_setting() {
    let request = SamplingRequest::default();
    let summary = diagnosed(&kinds(4, 1), &sampling("error=3%"));
    let kept = Kept::of(Trace::Sample(request), &summary).expect("a sample");
    assert_eq!(kept.ranks, sampled_ranks(population(&summary)));
    assert_eq!(kept.population, summary.population);
    let clusters = Kept::of(Trace::Clusters, &summary).expect("representatives");
    assert!(clusters.population.is_none() && clusters.ranks != kept.ranks);
    assert!(Kept::of(Trace::All, &summary).is_none());
    // If all ranks are needed, the spool stays as it is.
    let all = diagnosed(&kinds(150, 1), &sampling("confidence=99.9%,error=0.1%"));
    assert_eq!(sampled_ranks(population(&all)).len(), RANKS);
    assert_eq!(population(&all).achieved_error, Some(0.0));
    assert!(Kept::of(Trace::Sample(request), &all).is_none());
}
