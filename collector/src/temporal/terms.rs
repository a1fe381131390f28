//! Conversion of a finished temporal context tree to the user's terms: keys refer to calling
//! contexts, times are in nanoseconds, and code of a function outside calls and loops is merged
//! into the function itself.

use std::cell::OnceCell;
use std::collections::HashMap;

use super::KeyInterner;
use super::key_interner::NodeSite;
use crate::address_table::Addresses;
use crate::clock_rate::Rate;
use crate::contexts::Contexts;
use crate::profile::{NodeId, TemporalTreeKey};
use crate::raw_tree::{ROOT, RawId, Tree};
use plimsoll_trees::{Content, ControlFlow, Key, Node, Terms};

/// Mapping from tree keys to raw contexts.
struct RawTerms<'a> {
    keys: &'a KeyInterner,
    tree: &'a Tree,
    /// All raw contexts as (parent, address id, context), ascending. Building the list visits the
    /// whole raw tree, so it is done only if a node has no address that leads to its context.
    inner: OnceCell<Vec<(RawId, u32, RawId)>>,
}

/// Collects the raw contexts that trees pass through.
struct Passed<'a> {
    raw: RawTerms<'a>,
    contexts: Vec<RawId>,
}

/// Mapping from tree keys to the user's contexts.
struct UserTerms<'a, 'c> {
    raw: RawTerms<'a>,
    addresses: &'a Addresses,
    contexts: &'a mut Contexts<'c>,
    rate: Rate,
    user_keys: Vec<TemporalTreeKey>,
    ids: HashMap<(Option<NodeId>, u64), Key>,
}

/// Returns the raw contexts that the trees pass through, whether or not time was charged to them.
pub(crate) fn passed<'n>(
    temporal_trees: impl IntoIterator<Item = &'n Node>,
    keys: &KeyInterner,
    tree: &Tree,
) -> Vec<RawId> {
    let mut terms = Passed { raw: RawTerms::new(keys, tree), contexts: Vec::new() };
    for temporal_tree in temporal_trees {
        temporal_tree.translated((ROOT, temporal_tree.key()), &mut terms);
    }
    terms.contexts
}

/// Converts trees to the terms of `contexts`, which must be built from `tree`. Returns the
/// converted trees, and the meaning of their keys, indexed by key.
pub(crate) fn to_user_terms<'n>(
    temporal_trees: impl IntoIterator<Item = &'n Node>,
    keys: &KeyInterner,
    tree: &Tree,
    addresses: &Addresses,
    contexts: &mut Contexts<'_>,
    rate: Rate,
) -> (Vec<Node>, Vec<TemporalTreeKey>) {
    let (raw, user_keys, ids) = (RawTerms::new(keys, tree), Vec::new(), HashMap::new());
    let mut terms = UserTerms { raw, addresses, contexts, rate, user_keys, ids };
    let root = terms.key(TemporalTreeKey { node: None, site: 0, position: None });
    let temporal_trees = temporal_trees
        .into_iter()
        .map(|temporal_tree| temporal_tree.translated((ROOT, root), &mut terms));
    (temporal_trees.collect(), terms.user_keys)
}

impl UserTerms<'_, '_> {
    fn key(&mut self, key: TemporalTreeKey) -> Key {
        let user_keys = &mut self.user_keys;
        *self.ids.entry((key.node, key.site)).or_insert_with(|| {
            user_keys.push(key);
            Key(user_keys.len() as u32 - 1)
        })
    }
}

impl<'a> RawTerms<'a> {
    fn new(keys: &'a KeyInterner, tree: &'a Tree) -> Self {
        Self { keys, tree, inner: OnceCell::new() }
    }

    /// Returns the raw context of the call site of the function that contains a call or a loop,
    /// given the raw context `around` it, and one raw context within the call or loop. Returns
    /// `None` for places, and if no such context is known.
    fn of(&self, around: RawId, node: &Node) -> Option<(RawId, RawId)> {
        // A node without time may lie after the end of the run, which was unknown when it was
        // recorded.
        let key = Some(node.key()).filter(|_| node.duration() > 0)?;
        let site = match self.keys.node_site(key)? {
            NodeSite::Call(site) => site.map_or(Some(ROOT), |site| self.inner_of(around, site))?,
            NodeSite::Loop(_) => around,
            NodeSite::Address(_) => return None,
        };
        Some((site, self.context_in(site, node)?))
    }

    /// Returns a raw context of an address in a call or a loop that a function makes at `site`.
    fn context_in(&self, site: RawId, node: &Node) -> Option<RawId> {
        let known = self.address_in(node).and_then(|address| self.inner_of(site, address));
        known.or_else(|| {
            self.tree.twins(site).find_map(|site| self.contexts_in(site, node.key()).next())
        })
    }

    /// Returns the context directly inside another one at an address. A temporal context tree does
    /// not know the root of a stack: any root with these frames will do.
    fn inner_of(&self, outer: RawId, address: u32) -> Option<RawId> {
        let own = self.tree.inner(outer, address);
        own.or_else(|| self.tree.twins(outer).find_map(|twin| self.tree.inner(twin, address)))
    }

    /// Returns an address at which a node was sampled, directly in its function.
    fn address_in(&self, node: &Node) -> Option<u32> {
        let address = |node: &Node| match self.keys.node_site(node.key())? {
            NodeSite::Call(site) => site,
            NodeSite::Loop(_) => self.address_in(node),
            NodeSite::Address(address) => Some(address),
        };
        // Sets are sorted by the numbers of keys, which depend on the thread that was read first.
        let in_set = |set: &[Node]| {
            let mut nodes: Vec<&Node> = set.iter().collect();
            nodes.sort_unstable_by(|one, other| self.keys.order(one.key(), other.key()));
            nodes.into_iter().find_map(address)
        };
        match node.content() {
            Content::Ordered(children) => children.iter().find_map(address),
            Content::Profile(children) => in_set(children),
            Content::Loop(iterations) => {
                let mut trees = iterations.clusters().iter().map(|cluster| &cluster.tree);
                trees
                    .find_map(|tree| self.address_in(tree))
                    .or_else(|| in_set(iterations.rejected_children()))
            }
        }
    }

    /// Returns the raw contexts under `site` with addresses inside the call or loop of `key`.
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
    /// Raw context of the call site of the function that contains a node.
    type Place = RawId;

    fn node(&mut self, around: RawId, node: &Node) -> Option<(RawId, Key)> {
        let (raw, within) = self.raw.of(around, node)?;
        let (keys, key) = (self.raw.keys, node.key());
        let position = keys.position(key);
        match keys.node_site(key)? {
            NodeSite::Call(site) => {
                let node = self.contexts.place(within).map(|place| place.called);
                let site = match site {
                    Some(site) => self.addresses.named(site).map(|named| named.offset),
                    // An outermost call has no call site; its entry address distinguishes it from
                    // others.
                    None => keys.entry(key),
                };
                let site = site.unwrap_or(0);
                Some((raw, self.key(TemporalTreeKey { node, site, position })))
            }
            NodeSite::Loop(depth) => {
                let node = self.contexts.loop_around(within, depth);
                // A loop outside the user's contexts is left out.
                node?;
                Some((raw, self.key(TemporalTreeKey { node, site: 0, position })))
            }
            NodeSite::Address(_) => None,
        }
    }

    fn time(&self, stamps: u64) -> u64 {
        self.rate.ns(stamps)
    }

    fn keeps_instances(&self) -> bool {
        true
    }
}
