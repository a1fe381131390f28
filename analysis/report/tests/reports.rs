//! Snapshots of reports, read and approved.

#[path = "../../summary/tests/summaries/mod.rs"]
mod summaries;

use std::path::Path;

use plimsoll_report::{BRIEF_LINES, TEXT_LINES, WIDTH, brief, text, tree};
use plimsoll_summary::phrase::count;
use plimsoll_summary::printable::is_plain;
use plimsoll_summary::{
    Bicluster, Cause, Estimate, Lateness, LossKind, RankGroup, Summary, Symptom, TruncatedBy,
    WaitsFor, WorkDifferenceKind,
};

const REPORT: &str = "/home/ada/stencil/stencil_4711_16p_20260301T093000.plimsoll.txt";

fn both(summary: &Summary) -> String {
    let brief = brief(summary, Some(Path::new(REPORT)), BRIEF_LINES);
    format!("{}\n---- on stderr\n{brief}", text(summary))
}

macro_rules! looks {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            insta::assert_snapshot!(both(&summaries::$name()));
        })*
    };
}

looks! {
    imbalance serialization oversubscription balanced without_mpi ended_by_signal overfull minimal
}

#[test]
fn whole_tree() {
    insta::assert_snapshot!(tree(&summaries::without_mpi()));
}

#[test]
fn a_call_of_mpi_is_named_with_its_line() {
    let mut summary = summaries::imbalance();
    let place = |frame: &mut plimsoll_summary::Frame| {
        if frame.function == "MPI_Allreduce" {
            (frame.file, frame.line) = (Some("/src/stencil.c".into()), Some(235));
        }
    };
    summary.tree.frames.iter_mut().for_each(place);
    summary.losses[0].symptom.path.iter_mut().for_each(place);
    let text = both(&summary).replace('\n', " ");
    for part in [
        "Seen in    MPI_Allreduce at stencil.c:235, where ranks 0-11 wait",
        "loop at stencil.c:230 > MPI_Allreduce at stencil.c:235",
        "wait in MPI_Allreduce at stencil.c:235.",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(tree(&summary).contains("MPI_Allreduce at stencil.c:235"), "{}", tree(&summary));
}

#[test]
fn a_run_with_a_missing_part_is_not_reported_as_failed() {
    let mut summary = summaries::balanced();
    summary.run.complete = false;
    summary.run.incomplete = Some("the spool of rank 2 is damaged".into());
    let text = text(&summary);
    assert!(text.contains("INCOMPLETE: the spool of rank 2 is damaged.\n"), "{text}");
    assert!(!text.contains("ended by"), "{text}");
}

#[test]
fn a_short_run_says_how_long_one_must_be() {
    for (mut summary, period_us) in [
        (summaries::balanced(), 1e7),
        (summaries::without_mpi(), 1e7),
        (summaries::balanced(), 4e3),
    ] {
        summary.losses.clear();
        summary.thresholds.insert("min_run_periods".into(), 25.0);
        (summary.run.period_us.asked, summary.run.elapsed_s) = (period_us, 20.0 * period_us * 1e-6);
        let text = text(&summary);
        let least = if period_us == 1e7 { "250.0 s" } else { "0.10 s" };
        let words = format!("let it last {least} or more.");
        assert!(text.replace('\n', " ").contains(&words), "{text}");
    }
}

#[test]
fn unknown_cost_of_collecting_is_not_zero() {
    let mut summary = summaries::balanced();
    summary.collection.collector_cpu_s = 0.0;
    let text = text(&summary);
    assert!(text.replace('\n', " ").contains("collecting unknown"), "{text}");
    assert!(!text.contains(" 0 s collecting"), "{text}");
}

#[test]
fn a_report_says_how_many_ranks_of_the_job_were_measured() {
    let mut summary = summaries::balanced();
    let of = |summary: &Summary| text(summary).lines().next().map(str::to_owned);
    summary.run.world_ranks = Some(summary.run.ranks);
    assert_eq!(of(&summary), of(&summaries::balanced()));
    (summary.run.ranks, summary.run.world_ranks) = (8, Some(64));
    let head = of(&summary).expect("a line");
    assert!(head.contains(": 8 of 64 ranks with 16 threads on "), "{head}");
}

#[test]
fn every_report_fits_its_place() {
    for summary in [
        summaries::minimal(),
        summaries::imbalance(),
        summaries::overfull(),
        summaries::without_mpi(),
        summaries::maximal(),
    ] {
        let text = text(&summary);
        assert!(text.lines().count() <= TEXT_LINES, "{} lines", text.lines().count());
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH));
        for lines in [1, 7, BRIEF_LINES, 1000] {
            let brief = brief(&summary, Some(Path::new(REPORT)), lines);
            assert!(brief.lines().count() <= lines.min(BRIEF_LINES));
            assert!(brief.lines().all(|line| line.starts_with("plimsoll: ")));
            assert_eq!(brief.lines().last(), Some(format!("plimsoll: report: {REPORT}").as_str()));
        }
        let printable = |char: char| char == '\n' || is_plain(char);
        assert!(text.chars().chain(tree(&summary).chars()).all(printable));
    }
}

#[test]
fn advice_is_never_cut_off() {
    let mut summary = summaries::imbalance();
    let advice = "Distribute the work of compute_forces more evenly over all ranks. ".repeat(6);
    summary.losses[0].advice = advice.trim().to_owned();
    let brief = brief(&summary, Some(Path::new(REPORT)), BRIEF_LINES);
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for report in [text(&summary), brief.replace("plimsoll: ", "")] {
        assert!(words(&report).contains(advice.trim()), "{report}");
    }
}

#[test]
fn partners_with_a_tiny_share_of_the_waiting_are_not_named() {
    let mut summary = summaries::imbalance();
    let partner = |ranks: &str, share| WaitsFor { ranks: ranks.into(), share, seconds: share };
    summary.losses[0].waits_for = vec![partner("12", 0.992), partner("3", 0.008)];
    let text = text(&summary);
    assert!(text.contains("wait for rank 12 (99 %)"), "{text}");
    assert!(!text.contains("(0.8 %)"), "{text}");
}

#[test]
fn partners_without_a_known_reason_are_named_alone() {
    let mut summary = summaries::imbalance();
    let partner = WaitsFor { ranks: "12".into(), share: 1.0, seconds: 1.0 };
    summary.losses[0].waits_for = vec![partner];
    summary.losses[0].lateness = Some(Lateness { unknown: 1.0, ..Lateness::default() });
    let text = text(&summary);
    assert!(text.contains("wait for rank 12 (100 %)\n"), "{text}");
}

#[test]
fn a_single_waiting_rank_waits_for_its_partners_and_not_for_itself() {
    let mut summary = summaries::imbalance();
    let loss = &mut summary.losses[0];
    let partner = |ranks: &str, share| WaitsFor { ranks: ranks.into(), share, seconds: share };
    (loss.kind, loss.waiting_ranks) = (LossKind::WaitForPartner, "1".into());
    loss.waits_for = vec![partner("0", 0.64), partner("1", 0.36)];
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let found = words(&text(&summary));
    assert!(found.contains("where rank 1 waits for its partners ("), "{found}");
    assert!(found.contains("rank 1 waits for rank 0 (64 %)"), "{found}");
    assert!(!found.contains("rank 1 (36 %)"), "{found}");
    summary.losses[0].waiting_ranks = "0-1".into();
    let found = words(&text(&summary));
    assert!(found.contains("ranks 0-1 wait for rank 0 (64 %), rank 1 (36 %)"), "{found}");
}

#[test]
fn all_calls_in_which_ranks_wait_for_partners_are_named() {
    let mut summary = summaries::imbalance();
    let barrier = summary.losses[0].symptom.clone();
    let loss = &mut summary.losses[0];
    loss.kind = LossKind::WaitForPartner;
    loss.waits_for =
        vec![WaitsFor { ranks: "12".into(), share: 1.0, seconds: loss.symptom.mean_s }];
    loss.also_in = vec![Symptom { mean_s: 1.5, ..barrier }];
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let found = words(&text(&summary));
    let seen_in = "MPI_Allreduce, where ranks 0-11 wait for their partners (40.2 s at most, 31.2 s \
                   on average); also MPI_Allreduce (1.50 s on average)";
    assert!(found.contains(seen_in), "{found}");
    assert!(found.contains("ranks 0-11 wait for rank 12 (100 %)"), "{found}");
    let loss = &mut summary.losses[0];
    loss.also_in = vec![loss.also_in[0].clone(); 4];
    let found = words(&text(&summary));
    assert!(found.contains("(1.50 s on average) and 2 more"), "{found}");
    let elsewhere = "; most of the loss shows on other call paths";
    assert!(!found.contains(elsewhere), "{found}");
    let loss = &mut summary.losses[0];
    (loss.also_in, loss.symptom.mean_s) = (Vec::new(), 0.49 * loss.seconds);
    let found = words(&text(&summary));
    assert!(found.contains(elsewhere), "{found}");
}

#[test]
fn truncated_call_paths_are_counted() {
    let mut summary = summaries::balanced();
    summary.collection.truncated = summary.collection.samples * 5;
    let found = text(&summary).split_whitespace().collect::<Vec<_>>().join(" ");
    let number = count(summary.collection.truncated);
    assert!(found.contains(&format!("; {number} call paths are truncated")), "{found}");
    // More call paths than those of samples are recorded, by calls.
    summary.collection.truncated = 1;
    let found = text(&summary).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(found.contains("; 1 call path is truncated"), "{found}");
    let by = TruncatedBy { no_caller: 1, ..TruncatedBy::default() };
    for (number, reason) in [
        (1, "; 1 call path is truncated, at code without an unwind table"),
        (2, "; 2 call paths are truncated, most of them at code without an unwind table"),
    ] {
        (summary.collection.truncated, summary.collection.truncated_by) = (number, by);
        let found = text(&summary).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(found.contains(reason), "{found}");
    }
}

#[test]
fn causes_of_one_function_are_told_apart() {
    let mut summary = summaries::imbalance();
    let first = summary.losses[0].causes[0].clone();
    let mut second = first.clone();
    // The function is recursive.
    second.path.insert(1, first.path[0].clone());
    summary.losses[0].causes = vec![first, second];
    let further = |summary: &Summary| {
        let text = text(summary).split_whitespace().collect::<Vec<_>>().join(" ");
        text.split("also ").nth(1).unwrap_or_default().to_owned()
    };
    let found = further(&summary);
    assert!(found.contains(" on another call path ("), "{found}");
    // The ranks of a group say it better.
    let phase = summary.losses[0].phase as usize;
    let group = |ranks: &str| RankGroup { ranks: ranks.into(), mean_work_s: 1.0 };
    summary.phases[phase].groups = vec![group("0-5"), group("6-7")];
    summary.losses[0].causes[1].group = Some(1);
    let found = further(&summary);
    assert!(found.contains(" on ranks 6-7 (") && !found.contains("another"), "{found}");
}

#[test]
fn ranks_with_the_most_data_are_named_beside_the_calls() {
    for (slow, words) in [
        ("7", "; rank 7 moves the most data"),
        ("6-7", "; ranks 6-7 move the most data"),
        ("", "per rank)"),
    ] {
        let mut summary = summaries::imbalance();
        let loss = &mut summary.losses[0];
        (loss.kind, loss.slow_ranks) = (LossKind::LargeMessage, slow.to_owned());
        let text = text(&summary);
        let seen = text.split("Seen in").nth(1).and_then(|rest| rest.split("main >").next());
        let seen = seen.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(seen.ends_with(words), "{text}");
    }
}

#[test]
fn a_slow_place_is_named_with_its_factor() {
    let mut summary = summaries::imbalance();
    let loss = &mut summary.losses[0];
    loss.kind = LossKind::SlowNode;
    (loss.node, loss.factor) = (Some("node2".into()), Some(1.5));
    loss.causes.clear();
    let slow = "all work takes 1.50 times as long on node node2 (ranks 12-15) as elsewhere";
    let brief = brief(&summary, Some(Path::new(REPORT)), BRIEF_LINES).replace("plimsoll: ", "");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for report in [text(&summary), brief] {
        assert!(words(&report).contains(slow), "{report}");
    }
}

#[test]
fn a_cause_names_its_group_if_there_are_several() {
    let mut summary = summaries::imbalance();
    let second = summary.losses[0].causes[0].clone();
    summary.losses[0].causes.truncate(1);
    summary.losses[0].causes.push(Cause { group: Some(0), ..second });
    let phase = summary.losses[0].phase as usize;
    let group = |ranks: &str| RankGroup { ranks: ranks.into(), mean_work_s: 1.0 };
    summary.phases[phase].groups = vec![group("0-15")];
    let named = |summary: &Summary| {
        let text = text(summary);
        let at = text.find("also ").expect("there are two causes");
        text[at..].lines().next().map(str::to_owned).expect("a line")
    };
    assert!(!named(&summary).contains(" on "), "{}", named(&summary));
    summary.phases[phase].groups = vec![group("0-3"), group("4-15")];
    assert!(named(&summary).contains(" on ranks 0-3 ("), "{}", named(&summary));
}

#[test]
fn a_cause_says_whether_it_is_more_or_slower_work() {
    let mut summary = summaries::imbalance();
    let words = |summary: &Summary| -> String {
        text(summary).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let mut difference = summaries::more_work();
    summary.losses[0].causes[0].difference = Some(difference.clone());
    let more = "more work on rank 12: 2.00 times the instructions of the others in 2.07 times \
                the time (1.45 instructions per cycle, the others 1.50)";
    assert!(words(&summary).contains(more), "{}", words(&summary));
    difference.kind = WorkDifferenceKind::SlowerWork;
    (difference.ipc, difference.instructions_factor) = (0.75, 1.0);
    summary.losses[0].causes[0].difference = Some(difference);
    let slower = "slower work on rank 12: 0.75 instructions per cycle, the others 1.50 (1.00 times \
                  the instructions in 2.07 times the time)";
    assert!(words(&summary).contains(slower), "{}", words(&summary));
}

#[test]
fn contexts_and_ranks_that_vary_together_are_a_sentence() {
    let mut summary = summaries::imbalance();
    let bicluster = |ranks: &str, sign, variance_share| Bicluster {
        event: None,
        nodes: vec![1, 2, 3],
        ranks: ranks.into(),
        sign,
        variance_share,
    };
    let faulting = Bicluster { event: Some("page-faults".into()), ..bicluster("0-3", -1, 0.5) };
    summary.biclusters = vec![faulting];
    let of_events = text(&summary).split_whitespace().collect::<Vec<_>>().join(" ");
    let sentence = "Patterns ranks 0-3 have fewer page-faults than the others in ";
    assert!(of_events.contains(sentence), "{of_events}");
    summary.biclusters = vec![bicluster("12-15", 1, 0.62), bicluster("3", -1, 0.2)];
    let text = text(&summary).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("Patterns ranks 12-15 spend more time than the others in "), "{text}");
    assert!(text.contains("and 1 further context: 62 % of the variance among ranks."), "{text}");
    assert!(text.contains("Patterns rank 3 spends less time than the others in "), "{text}");
}

#[test]
fn sampled_ranks_and_their_precision_are_a_sentence() {
    let mut summary = summaries::imbalance();
    let mut population = summaries::population();
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    // In the digest of the spool, with intervals.
    summary.population = Some(population.clone());
    let found = words(&text(&summary));
    let choice = "4 of ranks 0-11; 2 of ranks 12-15 (random choice, seed 2271560481).";
    assert!(found.contains(&format!("Sampled 6 of 16 ranks stand for all: {choice}")), "{found}");
    let intervals = "With 95 % confidence, a rank on average computes for 59.4 s to 60.6 s, and \
                     spends 59.4 s to 60.6 s in ";
    assert!(found.contains(intervals), "{found}");
    // In the report of the job, which knows the means.
    let metrics = population.metrics.iter_mut().map(|metric| &mut metric.time);
    metrics.for_each(|time| (time.low_s, time.high_s) = (None, None));
    summary.population = Some(population.clone());
    let found = words(&text(&summary));
    assert!(
        found.contains(&format!("Sampled 6 of 16 ranks keep their samples: {choice}")),
        "{found}"
    );
    let precision = "With 95 % confidence, their means are within 1.0 % of those of all ranks \
                     (asked: 3.0 %).";
    assert!(found.contains(precision), "{found}");
    // If nothing less suffices, all ranks are kept.
    population.achieved_error = Some(0.0);
    summary.population = Some(population.clone());
    assert!(words(&text(&summary)).contains("Fewer would not have the precision that is asked."));
    // If a cluster has lost all its ranks.
    population.achieved_error = None;
    population.metrics.clear();
    summary.population = Some(population);
    assert!(words(&text(&summary)).contains("Nothing can be said of the others."));
    assert!(!text(&summaries::imbalance()).contains("Sampled"));
}

#[test]
fn the_tree_of_sampled_ranks_has_estimates_with_their_errors() {
    let mut summary = summaries::imbalance();
    let [exact, _] = [&summary; 2].map(tree);
    let node = &mut summary.tree.nodes[0].inclusive;
    node.estimate = Some(Estimate { mean_s: 200.0, low_s: 190.0, high_s: 210.0 });
    let estimated = tree(&summary);
    assert!(exact.contains("(mean over ranks, "), "{exact}");
    assert!(estimated.contains("(estimated mean over all ranks)"), "{estimated}");
    assert!(estimated.contains("    200.00     5.0   100.0  main"), "{estimated}");
}

/// Everything that a report can say at its end, at once.
#[test]
fn a_report_with_everything_in_it_still_fits() {
    let (mut summary, all) = (summaries::overfull(), summaries::maximal());
    summary.population = all.population;
    summary.counters = all.counters;
    summary.thread_clusters = vec![all.thread_clusters[0].clone(); 9];
    summary.biclusters = vec![all.biclusters[0].clone(); 9];
    summary.loops = vec![all.loops[0].clone(); 9];
    summary.clusters = all.clusters;
    (summary.threads, summary.openmp) = (all.threads, all.openmp);
    summary.openmp.regions = vec![summary.openmp.regions[0].clone(); 9];
    summary.openmp.regions.iter_mut().for_each(|region| region.elapsed_s = 3000.0);
    summary.efficiency.openmp = all.efficiency.openmp;
    summary.notes.iter_mut().for_each(|note| *note = note.repeat(30));
    (summary.run.complete, summary.run.ended) = (false, "signal 15".into());
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let fits = |summary: &Summary, verdict: &str| {
        let report = text(summary);
        assert!(report.lines().count() <= TEXT_LINES, "{report}");
        assert!(report.starts_with("stencil, job 4711: "), "{report}");
        for part in ["INCOMPLETE: ", verdict, "\nMeasured ", "\nMore ", "\nLeft out   Note"] {
            assert!(report.contains(part), "{part} is not in\n{report}");
        }
        report
    };
    let report = fits(&summary, "14 losses found. ");
    assert!(words(&report).contains(&words(&summary.losses[0].advice)), "{report}");
    for part in ["\n4. Load imbalance", "\n10 smaller losses", "\nRun time "] {
        assert!(report.contains(part), "{part} is not in\n{report}");
    }
    summary.losses.clear();
    let report = fits(&summary, "No single loss costs more than ");
    assert!(report.contains("calling context ") && report.contains("  main"), "{report}");
}

#[test]
fn regions_and_threads_have_their_lines() {
    let mut summary = summaries::maximal();
    let region = &mut summary.openmp.regions[0];
    (region.elapsed_s, region.thread_s, region.work_s) = (3000.0, 6000.0, 4500.0);
    (region.load_balance_s, region.node) = (600.0, 3);
    let report = text(&summary);
    let words = report.split_whitespace().collect::<Vec<_>>().join(" ");
    for line in [
        "x threads 72 %.",
        "OpenMP threads work 72 % of the time without MPI: load balance 90 % x scheduling 100 % x \
         serialisation 80 %.",
        "smooth.c:12 in step: 40 x 75.0 s with 2 threads, idle 25 % (uneven 10 %).",
        "Threads besides one thread of each rank: ",
        "computation of a thread: initial 100.0 s, slowest 60.0 s, fastest 10.0 s, rest 30.0 s.",
    ] {
        assert!(words.contains(line), "{line} is not in\n{report}");
    }
    let all = tree(&summary);
    assert!(all.lines().any(|line| line.ends_with("smooth.c:12 in step")), "{all}");
}
