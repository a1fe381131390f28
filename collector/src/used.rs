//! Which addresses the contexts of a run consist of: only these need names. What a program did before its
//! run began, in hundreds of functions of its libraries, is asked for by nobody.

use std::collections::{HashMap, HashSet};

use crate::account::Account;
use crate::addresses::Detail;
use crate::course::Courses;
use crate::phases::Phases;
use crate::series::Series;
use crate::tree::{IdMap, ROOT, RawId, Tree};

/// Ids of the addresses of all contexts that have values, or that courses have passed through, and how much
/// of each is to be known.
pub(crate) fn addresses(
    tree: &Tree,
    phases: &Phases,
    series: &Series,
    groups: &IdMap<u32, Account>,
    courses: &Courses,
) -> HashMap<u32, Detail> {
    let mut used = Used { tree, contexts: HashSet::new(), addresses: HashMap::new() };
    for phase in phases.list() {
        phase.begins_after.into_iter().chain(phase.ends_in).for_each(|raw| used.path(raw));
        used.account(&phase.account);
    }
    for row in phases.rows().kept().iter().chain(phases.divisions().kept()) {
        row.ends_in.into_iter().for_each(|raw| used.path(raw));
        row.nodes.iter().for_each(|raw| used.path(*raw));
        row.rests.iter().for_each(|((one, other), _)| {
            used.path(*one);
            used.path(*other);
        });
    }
    courses.passed(tree).into_iter().for_each(|raw| used.path(raw));
    series.nodes().for_each(|raw| used.path(raw));
    for (routine, account) in groups {
        used.addresses.entry(*routine).or_insert(Detail::Symbol);
        used.account(account);
    }
    used.addresses
}

struct Used<'a> {
    tree: &'a Tree,
    contexts: HashSet<RawId>,
    addresses: HashMap<u32, Detail>,
}

impl Used<'_> {
    fn account(&mut self, account: &Account) {
        account.values().nodes().for_each(|raw| self.path(raw));
        for (one, other) in account.rests().keys() {
            self.path(*one);
            self.path(*other);
        }
    }

    fn path(&mut self, mut raw: RawId) {
        while raw != ROOT && self.contexts.insert(raw) {
            let outer = self.tree.parent(raw);
            let detail = Detail::of(self.tree, outer);
            let known = self.addresses.entry(self.tree.address(raw)).or_insert(detail);
            *known = detail.max(*known);
            raw = outer;
        }
    }
}
