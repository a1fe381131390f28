//! Tests of clusters: worked facts of the papers, laws over all trees, behaviours planted in trees,
//! and sampled programs with a known truth.

mod anything;
mod captured;
mod figures;
mod laws;
mod machine;
mod memory;
mod planted;
mod programs;

use super::{Blocks, Boundary, Cluster, Content, ControlFlow, Key, Kind, Merging, Node};

/// Order of keys; of the ten keys of one decade only one runs in a pass.
struct Decades;

impl ControlFlow for Decades {
    fn precedes(&self, _: Key, one: Key, other: Key) -> Option<bool> {
        Some(one.0 / 10 < other.0 / 10)
    }
}

/// Returns the clusters of complete instances.
fn clustered(instances: Vec<Cluster>) -> Vec<Cluster> {
    let merging = Merging { instances: instances.len() as u64, nodes: usize::MAX, flow: &Decades };
    let mut blocks = Blocks::default();
    for (number, cluster) in (0..).zip(instances) {
        blocks.add(number, vec![cluster], merging);
    }
    blocks.merged(merging)
}

/// A node with ordered children by key, own time between them, and exact boundaries.
fn regular(key: u32, kind: Kind, parts: Vec<Part>) -> Node {
    let mut children = Vec::new();
    let (mut own, mut duration) = (0, 0);
    for part in parts {
        match part {
            Part::Own(time) => {
                own += time;
                duration += time;
            }
            Part::Child(child) => {
                duration += child.duration;
                children.push(Node { before: std::mem::take(&mut own), ..child });
            }
        }
    }
    Node {
        key: Key(key),
        kind,
        count: 1,
        before: 0,
        duration,
        own,
        begin: Boundary::default(),
        end: Boundary::default(),
        content: Content::Ordered(children),
    }
}

#[derive(Clone, Debug)]
enum Part {
    Own(u64),
    Child(Node),
}

/// A call without children.
fn call(key: u32, duration: u64) -> Part {
    Part::Child(regular(key, Kind::Call, vec![Part::Own(duration)]))
}

/// An iteration of loop 1 with these calls, one after another.
fn iteration(calls: &[(u32, u64)]) -> Node {
    let calls = calls.iter().map(|(key, duration)| call(*key, *duration));
    regular(1, Kind::Iteration, calls.collect())
}

/// Gives all boundaries of a tree the uncertainty of samples with a period: half a period either
/// way.
fn sampled(mut node: Node, period: u64) -> Node {
    let boundary = Boundary { earlier: period / 2, later: period / 2 };
    (node.begin, node.end) = (boundary, boundary);
    if let Content::Ordered(children) = node.content {
        node.content =
            Content::Ordered(children.into_iter().map(|child| sampled(child, period)).collect());
    }
    node
}

/// Level of an iteration, without a pattern: level l holds one in 2^l of all numbers.
pub(crate) fn irregular_level(number: u64) -> u32 {
    let mut hash = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (hash ^ (hash >> 31)).trailing_zeros()
}

/// Members of clusters as text, in order.
fn members(clusters: &[Cluster]) -> Vec<String> {
    clusters.iter().map(|cluster| cluster.members.to_string()).collect()
}
