//! Series of samples in the user's terms: the context between successive samples, the synchronising
//! MPI calls in it, and the calls that may have begun and ended between two samples.

use std::collections::HashMap;

use plimsoll_calls::{self as calls, CallClass, CallId};

use super::{Seen, Series};
use crate::address_table::{Addresses, OWN_LIBRARY, Role};
use crate::clock_rate::Rate;
use crate::contexts::{Contexts, mpi_call};
use crate::profile::{self, NodeId, Passage, Sight, SyncSite};
use crate::raw_tree::{IdMap, ROOT, RawId, Tree};
use crate::stack_position::StackPosition;
use crate::temporal::KeyInterner;

/// Maximum nesting of calls, left or entered between two samples, that is examined.
const MAX_LEVELS: usize = 16;

/// Exports a series.
pub(crate) struct SeriesExporter<'a, 'c> {
    pub(crate) tree: &'a Tree,
    pub(crate) addresses: &'a Addresses,
    /// The functions of the user's code.
    pub(crate) keys: &'a KeyInterner,
    pub(crate) contexts: &'a mut Contexts<'c>,
    pub(crate) rate: Rate,
}

/// Tables that the exported series refers to.
#[derive(Default)]
struct Found {
    sites: Vec<SyncSite>,
    site_ids: HashMap<SyncSite, u32>,
    /// Site by context, and the depth of MPI's function in it; `None` outside of MPI.
    inside: IdMap<RawId, Option<(u32, u32)>>,
    passages: Vec<Passage>,
    /// By the context of the function's caller, and the addresses before and after.
    passage_ids: HashMap<(RawId, u32, u32), Option<u32>>,
    ways: Vec<Vec<u32>>,
    way_ids: HashMap<Vec<u32>, u32>,
}

impl SeriesExporter<'_, '_> {
    /// Returns the series of a run, if one was kept.
    pub(crate) fn export(&mut self, series: &Series) -> Option<profile::Series> {
        if !series.is_kept {
            return None;
        }
        let mut found = Found::default();
        let mut sights: Vec<Sight> = Vec::new();
        let mut stamps = 0u64;
        let mut before: Option<(&Seen, Option<(u32, u32)>)> = None;
        for seen in &series.seen {
            let earliest = stamps;
            stamps = stamps.saturating_add(seen.since_last.into());
            let inside = self.inside(seen.node, &mut found);
            let common = self.common(before.map_or(ROOT, |(seen, _)| seen.node), seen);
            let last = before.map(|(seen, inside)| (seen.node, inside));
            let goes_on = match (last, inside) {
                (Some((_, Some(was))), Some(is)) => was == is && common + 1 >= is.1,
                _ => false,
            };
            let begun = self.begun(last.map_or(ROOT, |(node, _)| node), seen.node, common);
            let way = last.and_then(|(node, _)| self.way(node, seen.node, common, &mut found));
            let node = self.contexts.node(seen.node).unwrap_or_else(|| self.contexts.main());
            before = Some((seen, inside));
            let inside = inside.map(|(site, _)| site);
            let run_delay_ns = self.rate.ns(seen.run_delay.into());
            let samples = u64::from(seen.samples);
            // Nothing has changed that anybody could ask for.
            if let Some(known) = sights.last_mut()
                && known.node == node
                && begun.is_empty()
                && way.is_none()
                && known.inside == inside
                && (goes_on || inside.is_none())
            {
                known.samples += samples;
                known.run_delay_ns += run_delay_ns;
                known.last_ns = self.rate.ns(stamps);
                continue;
            }
            sights.push(Sight {
                earliest_ns: self.rate.ns(earliest),
                at_ns: self.rate.ns(stamps.saturating_sub(seen.before.into()).max(earliest)),
                latest_ns: self.rate.ns(stamps),
                last_ns: self.rate.ns(stamps),
                node,
                begun,
                samples,
                run_delay_ns,
                inside,
                goes_on,
                way,
            });
        }
        let Found { sites, passages, ways, .. } = found;
        let (is_whole, stride) = (series.is_whole, series.stride);
        Some(profile::Series { is_whole, stride, sights, sites, passages, ways })
    }

    /// Returns the synchronisation that a context lies in, by its outermost frame that is MPI's.
    fn inside(&mut self, raw: RawId, found: &mut Found) -> Option<(u32, u32)> {
        if let Some(known) = found.inside.get(&raw) {
            return *known;
        }
        let inside = self.find_inside(raw, found);
        found.inside.insert(raw, inside);
        inside
    }

    fn find_inside(&mut self, raw: RawId, found: &mut Found) -> Option<(u32, u32)> {
        // Contexts with a measured call, and calls made by the measurement, are known or not the
        // program's.
        let path = self.tree.path(raw);
        if self.tree.in_call(raw) || path.iter().any(|raw| self.is_ours(*raw)) {
            return None;
        }
        let begin = self.contexts.begin(&path);
        let call = |raw: &RawId| mpi_call_at(self.addresses, self.tree.address(*raw));
        let at = begin + path.get(begin..)?.iter().position(|raw| call(raw).is_some())?;
        let call = call(&path[at]).filter(|id| {
            calls::class(*id).is_some_and(|class| class == CallClass::CollectiveSync)
        })?;
        let chain = self.chain(&path[begin..at])?;
        let node = self.contexts.place(path[at])?.called;
        let site = SyncSite { chain, call, node };
        let sites = &mut found.sites;
        let id = *found.site_ids.entry(site).or_insert_with_key(|site| {
            sites.push(site.clone());
            sites.len() as u32 - 1
        });
        Some((id, at as u32 + 1))
    }

    /// Returns whether the code is this library's.
    fn is_ours(&self, raw: RawId) -> bool {
        let named = self.addresses.named(self.tree.address(raw));
        named.is_some_and(|named| self.addresses.frame(named.frame).module.starts_with(OWN_LIBRARY))
    }

    /// Returns the positions of a path's calls in their files.
    fn chain(&self, path: &[RawId]) -> Option<Vec<u64>> {
        let offset = |raw: &RawId| Some(self.addresses.named(self.tree.address(*raw))?.offset);
        path.iter().map(offset).collect()
    }

    /// Returns the number of frames that have stayed since another context was seen. Where records
    /// are missing, equal frames count as the same call, so that no call is invented.
    fn common(&self, before: RawId, seen: &Seen) -> u32 {
        let place = |node| StackPosition { node, clipped: 0 };
        let looks_kept = || place(before).common(place(seen.node), self.tree);
        seen.common.map_or_else(looks_kept, u32::from)
    }

    /// Procedures that began since another context was seen: as
    /// [`crate::stack_position::StackPosition::count_begun`] counts them.
    fn begun(&mut self, before: RawId, now: RawId, common: u32) -> Vec<NodeId> {
        let replaced = self.tree.depth(before) > common;
        let mut begun = Vec::new();
        let mut raw = now;
        while self.tree.depth(raw) > common + u32::from(replaced) {
            if !self.tree.in_call(raw)
                && let Some(place) = self.contexts.place(raw)
                && self.contexts.counts_calls(raw)
            {
                begun.push(place.called);
            }
            raw = self.tree.parent(raw);
        }
        begun
    }

    /// Collects the calls that may have happened since another context was seen: by the function
    /// that stayed, by functions that were left, on their way out, and by functions that were
    /// entered.
    fn way(&mut self, before: RawId, now: RawId, common: u32, found: &mut Found) -> Option<u32> {
        let (one, other) = (self.tree.path(before), self.tree.path(now));
        let begin = self.contexts.begin(&other).min(self.contexts.begin(&one));
        let at = common as usize;
        let (from, to) = (one.get(at).copied()?, other.get(at).copied()?);
        if at < begin || one[begin..at].iter().any(|raw| self.is_foreign(*raw)) {
            return None;
        }
        let mut steps = vec![(Some(from), Some(to))];
        let inner = |path: &[RawId], first: RawId| -> Vec<RawId> {
            let users = |raw: &RawId| !self.is_foreign(*raw);
            if !users(&first) {
                return Vec::new();
            }
            path[at + 1..].iter().copied().take_while(users).take(MAX_LEVELS).collect()
        };
        steps.extend(inner(&one, from).into_iter().map(|raw| (Some(raw), None)));
        steps.extend(inner(&other, to).into_iter().map(|raw| (None, Some(raw))));
        let way: Vec<u32> =
            steps.into_iter().filter_map(|(from, to)| self.passage(from, to, found)).collect();
        if way.is_empty() {
            return None;
        }
        let ways = &mut found.ways;
        Some(*found.way_ids.entry(way).or_insert_with_key(|way| {
            ways.push(way.clone());
            ways.len() as u32 - 1
        }))
    }

    /// Returns the calls that a function may have made between two contexts in it.
    fn passage(
        &mut self,
        from: Option<RawId>,
        to: Option<RawId>,
        found: &mut Found,
    ) -> Option<u32> {
        let outer = self.tree.parent(from.or(to)?);
        let address = |raw: Option<RawId>| raw.map_or(0, |raw| self.tree.address(raw));
        let key = (outer, address(from), address(to));
        if let Some(known) = found.passage_ids.get(&key) {
            return *known;
        }
        let passage = self.find_passage(outer, from, to).map(|passage| {
            found.passages.push(passage);
            found.passages.len() as u32 - 1
        });
        found.passage_ids.insert(key, passage);
        passage
    }

    fn find_passage(
        &mut self,
        outer: RawId,
        from: Option<RawId>,
        to: Option<RawId>,
    ) -> Option<Passage> {
        let one = from.or(to)?;
        if self.is_foreign(one) {
            return None;
        }
        let address = |raw: Option<RawId>| raw.map(|raw| self.tree.address(raw));
        let calls = self.keys.passed(address(from), address(to)).filter(|it| !it.is_empty())?;
        let path = self.tree.path(one);
        let begin = self.contexts.begin(&path);
        let outer = self.chain(path.get(begin..self.tree.depth(outer) as usize)?)?;
        Some(Passage { outer, calls })
    }

    /// Returns whether a context belongs to MPI, which synchronises without a call visible to the
    /// user, or to a system library, which makes no such call.
    fn is_foreign(&self, raw: RawId) -> bool {
        let id = self.tree.address(raw);
        let role = self.addresses.named(id).map(|named| named.role);
        mpi_call_at(self.addresses, id).is_some() || role == Some(Role::Outside)
    }
}

/// Returns the MPI call with the function at an address.
fn mpi_call_at(addresses: &Addresses, id: u32) -> Option<CallId> {
    mpi_call(addresses.frame(addresses.named(id)?.frame))
}
