//! The finished course in the user's terms: its keys stand for contexts, its times are nanoseconds, and
//! what lies within a function outside of calls and loops is the function's own.

use std::cell::OnceCell;
use std::collections::HashMap;

use super::Keys;
use super::keys::Meaning;
use crate::addresses::Addresses;
use crate::clock::Rate;
use crate::contexts::Contexts;
use crate::profile::{CourseKey, NodeId};
use crate::tree::{ROOT, RawId, Tree};
use plimsoll_trees::{Content, Key, Node, Terms};

/// What the keys of courses stand for among the raw contexts.
struct RawTerms<'a> {
    keys: &'a Keys,
    tree: &'a Tree,
    /// Raw contexts by the one around them and their address ids; ascending. The whole
    /// tree is gone through for it, so only where a node has no address that leads to its context.
    inner: OnceCell<Vec<(RawId, u32, RawId)>>,
}

/// The raw contexts that courses pass through.
struct Passed<'a> {
    raw: RawTerms<'a>,
    contexts: Vec<RawId>,
}

/// What keys stand for to the user.
struct UserTerms<'a, 'c> {
    raw: RawTerms<'a>,
    addresses: &'a Addresses,
    contexts: &'a mut Contexts<'c>,
    rate: Rate,
    told: Vec<CourseKey>,
    ids: HashMap<(Option<NodeId>, u64), Key>,
}

/// The raw contexts that courses pass through, whether or not any time was booked there.
pub(crate) fn passed<'n>(
    courses: impl IntoIterator<Item = &'n Node>,
    keys: &Keys,
    tree: &Tree,
) -> Vec<RawId> {
    let mut terms = Passed { raw: RawTerms::new(keys, tree), contexts: Vec::new() };
    for course in courses {
        course.translated((ROOT, course.key()), &mut terms);
    }
    terms.contexts
}

/// Courses in the terms of `contexts`, which must be those of `tree`, and what their keys stand for then.
pub(crate) fn told<'n>(
    courses: impl IntoIterator<Item = &'n Node>,
    keys: &Keys,
    tree: &Tree,
    addresses: &Addresses,
    contexts: &mut Contexts<'_>,
    rate: Rate,
) -> (Vec<Node>, Vec<CourseKey>) {
    let (raw, told, ids) = (RawTerms::new(keys, tree), Vec::new(), HashMap::new());
    let mut terms = UserTerms { raw, addresses, contexts, rate, told, ids };
    let root = terms.key(CourseKey { node: None, site: 0, position: None });
    let courses = courses.into_iter().map(|course| course.translated((ROOT, root), &mut terms));
    (courses.collect(), terms.told)
}

impl UserTerms<'_, '_> {
    fn key(&mut self, key: CourseKey) -> Key {
        let told = &mut self.told;
        *self.ids.entry((key.node, key.site)).or_insert_with(|| {
            told.push(key);
            Key(told.len() as u32 - 1)
        })
    }
}

impl<'a> RawTerms<'a> {
    fn new(keys: &'a Keys, tree: &'a Tree) -> Self {
        Self { keys, tree, inner: OnceCell::new() }
    }

    /// The raw context of the call site of the function that a call or a loop lies in, under that of what is
    /// around, and one within it; `None` where that is not known, and of places.
    fn of(&self, around: RawId, node: &Node) -> Option<(RawId, RawId)> {
        // What has no time may lie behind the end of the run, which was not known when it happened.
        let key = Some(node.key()).filter(|_| node.duration() > 0)?;
        let site = match self.keys.meaning(key)? {
            Meaning::Call(site) => site.map_or(Some(ROOT), |site| self.tree.inner(around, site))?,
            Meaning::Loop(_) => around,
            Meaning::Place(_) => return None,
        };
        Some((site, self.context_in(site, node)?))
    }

    /// A raw context of an address in a call or a loop that a function makes at `site`.
    fn context_in(&self, site: RawId, node: &Node) -> Option<RawId> {
        let known = self.address_in(node).and_then(|address| self.tree.inner(site, address));
        known.or_else(|| self.contexts_in(site, node.key()).next())
    }

    /// An address that a node was seen at, directly in its function.
    fn address_in(&self, node: &Node) -> Option<u32> {
        let among = |nodes: &[Node]| {
            nodes.iter().find_map(|node| match self.keys.meaning(node.key())? {
                Meaning::Call(site) => site,
                Meaning::Loop(_) => self.address_in(node),
                Meaning::Place(address) => Some(address),
            })
        };
        match node.content() {
            Content::Ordered(children) | Content::Profile(children) => among(children),
            Content::Loop(iterations) => {
                let mut trees = iterations.clusters().iter().map(|cluster| &cluster.tree);
                trees.find_map(|tree| self.address_in(tree)).or_else(|| among(iterations.refused()))
            }
        }
    }

    /// The raw contexts under `site` whose addresses lie in what a key stands for.
    fn contexts_in(&self, site: RawId, key: Key) -> impl Iterator<Item = RawId> + '_ {
        let inner = self.inner.get_or_init(|| {
            let place = |raw: RawId| (self.tree.parent(raw), self.tree.address(raw), raw);
            let mut inner: Vec<(RawId, u32, RawId)> = self.tree.ids().map(place).collect();
            inner.sort_unstable();
            inner
        });
        let begin = inner.partition_point(|(outer, ..)| *outer < site);
        let under = inner[begin..].iter().take_while(move |(outer, ..)| *outer == site);
        let within = under.filter(move |(_, address, _)| self.keys.holds(key, *address));
        within.map(|(.., raw)| *raw)
    }
}

impl Terms for Passed<'_> {
    type Place = RawId;

    fn node(&mut self, around: RawId, node: &Node) -> Option<(RawId, Key)> {
        let (site, within) = self.raw.of(around, node)?;
        self.contexts.extend([site, within]);
        Some((site, node.key()))
    }
}

impl Terms for UserTerms<'_, '_> {
    /// The raw context of the call site of the function that a node lies in.
    type Place = RawId;

    fn node(&mut self, around: RawId, node: &Node) -> Option<(RawId, Key)> {
        let (raw, within) = self.raw.of(around, node)?;
        let (keys, key) = (self.raw.keys, node.key());
        let position = keys.position(key);
        match keys.meaning(key)? {
            Meaning::Call(site) => {
                let node = self.contexts.place(within).map(|place| place.called);
                let site = match site {
                    Some(site) => self.addresses.named(site).map(|named| named.offset),
                    // Nobody called it: what it is tells it from others.
                    None => keys.entry(key),
                };
                let site = site.unwrap_or(0);
                Some((raw, self.key(CourseKey { node, site, position })))
            }
            Meaning::Loop(depth) => {
                let node = self.contexts.loop_around(within, depth);
                // A loop that lies outside of the user's contexts is none to the user.
                node?;
                Some((raw, self.key(CourseKey { node, site: 0, position })))
            }
            Meaning::Place(_) => None,
        }
    }

    fn time(&self, stamps: u64) -> u64 {
        self.rate.ns(stamps)
    }
}
