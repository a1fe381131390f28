use plimsoll_trees::{RATIO_MIN, most_clusters};

use super::*;
use crate::agreement::{Agreed, Matching};
use crate::context_order::ordered;
use crate::rank::Rank;
use crate::synthetic_run::{Doing, MS, Subject, diagnose_on, doing, job};
use crate::totals::Totals;

const BARRIER: &str = "main/MPI_Barrier";

/// Returns ranks of three kinds: the first writes, the next `slow` relax for longer.
fn planted(ranks: u32, slow: u32) -> Subject {
    let mut subject = Subject::new(ranks);
    // 64 cores, as on a node, independent of the number of ranks.
    subject.cores = (0..64).collect();
    for _ in 0..4 {
        subject.step(BARRIER, |rank| behaviour(rank, slow));
    }
    subject
}

fn behaviour(rank: u32, slow: u32) -> Vec<Doing> {
    let relax = |ms: u64| doing("main/step/relax", ms * MS);
    match rank {
        0 => vec![doing("main/write", 30 * MS), relax(20)],
        _ if rank <= slow => vec![relax(60)],
        _ => vec![relax(20 + u64::from(rank % 3))],
    }
}

fn each_rank(subject: &Subject) -> Vec<Totals> {
    let agreed = Agreed {
        matching: Matching::Phases,
        level: 0,
        subgroup_level: 0,
        ranks: subject.ranks,
        rules: Default::default(),
        by_samples: false,
    };
    let totals = (0..subject.ranks).map(|rank| {
        let mut totals = Totals::default();
        totals.add_rank(&Rank::new(&subject.input(rank), &agreed), &agreed);
        totals
    });
    totals.collect()
}

/// Combines neighbours pairwise, then the results pairwise, as a reduction does.
fn in_pairs(mut all: Vec<Totals>) -> Totals {
    while all.len() > 1 {
        let mut rest = all.into_iter();
        all = Vec::new();
        while let Some(one) = rest.next() {
            all.push(match rest.next() {
                Some(other) => one.combine(other),
                None => one,
            });
        }
    }
    all.pop().unwrap()
}

/// Returns the members of each cluster, the totals of all contexts as text, and the clusters with
/// their trees.
fn summarised(totals: Totals) -> (Vec<String>, String, Vec<Cluster<MemberRanks>>) {
    let mut totals = ordered(totals);
    let finished = std::mem::take(&mut totals.clusters).finished();
    let members = finished.clusters.iter().map(|cluster| cluster.members.to_string()).collect();
    (members, format!("{:?}", totals.nodes), finished.clusters)
}

#[test]
fn thousands_of_ranks_give_the_same_clusters_in_every_order() {
    let mut all = each_rank(&planted(4096, 300));
    let truth = summarised(in_pairs(all.clone()));
    assert_eq!(truth.0, ["0", "1-300", "301-4095"]);
    let duration: u64 = truth.2.iter().map(|cluster| cluster.tree.duration()).sum();
    assert_eq!(duration, 4096 * 4 * 60 * MS);
    all.rotate_left(1234);
    assert!(summarised(in_pairs(all)) == truth, "from the middle");
}

#[test]
fn the_shape_of_the_reduction_changes_nothing() {
    let all = each_rank(&planted(500, 100));
    let truth = summarised(in_pairs(all.clone()));
    assert_eq!(truth.0, ["0", "1-100", "101-499"]);
    let one_by_one = all.clone().into_iter().reduce(Totals::combine).unwrap();
    assert!(summarised(one_by_one) == truth, "one by one");
    // Ranks are placed round-robin on nodes, and nodes are combined starting with the last.
    let nodes = (0..48).map(|node| in_pairs(all.iter().skip(node).step_by(48).cloned().collect()));
    let from_last = nodes.rev().reduce(Totals::combine).unwrap();
    assert!(summarised(from_last) == truth, "round nodes");
}

#[test]
fn few_blocks_wait_for_their_partners() {
    let all = each_rank(&planted(1000, 10));
    let mut totals = Totals::default();
    for one in all {
        totals = totals.combine(one);
        // Of at most log2(1000) blocks.
        assert!(totals.clusters.blocks.waiting().count() <= 10 * most_clusters(1000));
    }
}

#[test]
fn the_rank_nearest_to_the_mean_represents_a_cluster() {
    let clusters = diagnose_on(3, &planted(8, 0).inputs(), &job()).clusters;
    let ranks: Vec<&str> = clusters.iter().map(|cluster| cluster.ranks.as_str()).collect();
    assert_eq!(ranks, ["0", "1-7"]);
    // Members relax for 21, 22, 20, 21, 22, 20 and 21 ms in each step: 21 on average.
    assert_eq!(clusters[1].representative, 1);
    assert!(clusters.iter().all(|cluster| cluster.distance > Some(RATIO_MIN)));
}

#[test]
fn ranks_without_courses_are_in_no_cluster() {
    let subject = planted(2, 0);
    let mut inputs = subject.inputs();
    inputs[0].profile.temporal_tree = None;
    let summary = crate::diagnose::diagnose_alone(inputs, &job()).unwrap();
    let ranks: Vec<&str> = summary.clusters.iter().map(|it| it.ranks.as_str()).collect();
    assert_eq!(ranks, ["1"]);
    assert_eq!(summary.clusters[0].distance, None);
}
