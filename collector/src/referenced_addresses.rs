//! Addresses in the contexts of a run: only these need names. Addresses from before the run, in
//! hundreds of library functions, are skipped.

use std::collections::{HashMap, HashSet};

use crate::account::Account;
use crate::address_table::{Detail, Samples, Use};
use crate::graft_makers;
use crate::phases::Phases;
use crate::raw_tree::{IdMap, RawId, Tree};
use crate::region_values::RegionValues;
use crate::sample_series::Series;
use crate::temporal::TemporalTrees;
use crate::thread_accounts::ThreadAccounts;

/// Number of samples that puts an address before all others in the order of lookups: a region of
/// OpenMP is known to the user by its line alone.
const FIRST_LOOKED_UP: u64 = 1 << 40;

/// Samples of each address that was sampled, or that called what was.
pub(crate) fn samples(
    tree: &Tree,
    phases: &Phases,
    threads: &ThreadAccounts,
) -> IdMap<u32, Samples> {
    let mut by_context = vec![0u64; tree.ids().end as usize];
    let mut by_address: IdMap<u32, Samples> = IdMap::default();
    let of_threads = threads.iter().map(|(_, account)| account);
    for account in phases.accounts().chain(of_threads) {
        for (raw, value) in account.values().iter().filter(|(_, value)| value.samples > 0) {
            let Some(all) = by_context.get_mut(raw as usize) else { continue };
            *all = all.saturating_add(value.samples);
            by_address.entry(tree.address(raw)).or_default().own += value.samples;
        }
    }
    for raw in tree.ids().rev() {
        let all = by_context[raw as usize];
        if all > 0 {
            by_address.entry(tree.address(raw)).or_default().all += all;
            by_context[tree.parent(raw) as usize] += all;
        }
    }
    by_address
}

/// Ids of the addresses of all contexts that have values, or that temporal context trees have
/// passed through, and how much of each is to be known.
pub(crate) fn addresses(
    tree: &Tree,
    phases: &Phases,
    series: &Series,
    threads: &ThreadAccounts,
    temporal_trees: &TemporalTrees,
    regions: &RegionValues,
) -> HashMap<u32, Use> {
    let mut used = Used { tree, contexts: HashSet::new(), addresses: HashMap::new() };
    for phase in phases.list() {
        phase.begins_after.into_iter().chain(phase.ends_in).for_each(|raw| used.path(raw));
        used.account(&phase.account);
    }
    for row in phases.rows().instances().iter().chain(phases.subgroup_intervals().instances()) {
        row.ends_in.into_iter().for_each(|raw| used.path(raw));
        row.nodes.iter().for_each(|raw| used.path(*raw));
        row.unsampled.iter().for_each(|((one, other), _)| {
            used.path(*one);
            used.path(*other);
        });
    }
    temporal_trees.passed(tree).into_iter().for_each(|raw| used.path(raw));
    series.nodes().for_each(|raw| used.path(raw));
    regions.callers().for_each(|raw| used.path(raw));
    graft_makers::makers(tree, regions).into_values().for_each(|raw| used.path(raw));
    for (place, value) in regions.sorted() {
        used.path(place.node);
        used.addresses.insert(value.totals.function, Detail::Structure);
    }
    for task in regions.tasks() {
        used.addresses.insert(task.totals.function, Detail::Structure);
    }
    for (routine, account) in threads.iter() {
        used.addresses.entry(routine).or_insert(Detail::Symbol);
        used.account(account);
    }
    let samples = samples(tree, phases, threads);
    let outlined: HashSet<u32> = regions.functions().collect();
    let with_samples = |(id, detail)| {
        let mut samples: Samples = samples.get(&id).copied().unwrap_or_default();
        if outlined.contains(&id) {
            samples.all += FIRST_LOOKED_UP;
        }
        (id, Use { detail, samples })
    };
    used.addresses.into_iter().map(with_samples).collect()
}

struct Used<'a> {
    tree: &'a Tree,
    contexts: HashSet<RawId>,
    addresses: HashMap<u32, Detail>,
}

impl Used<'_> {
    fn account(&mut self, account: &Account) {
        account.values().nodes().for_each(|raw| self.path(raw));
        for (one, other) in account.unsampled().keys() {
            self.path(*one);
            self.path(*other);
        }
    }

    fn path(&mut self, mut raw: RawId) {
        while self.tree.depth(raw) > 0 && self.contexts.insert(raw) {
            let outer = self.tree.parent(raw);
            let detail = Detail::of(self.tree, outer);
            let known = self.addresses.entry(self.tree.address(raw)).or_insert(detail);
            *known = detail.max(*known);
            raw = outer;
        }
    }
}
