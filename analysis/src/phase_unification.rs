//! Merges a rank's phases to the phases that all ranks agree on: the phases of a part of the run,
//! or of the whole run, become one.

use std::collections::BTreeMap;

use plimsoll_collector::profile::{NodeId, NodeValue, PhaseProfile, ProcessProfile};

/// Returns all phases of a rank as one, for ranks that do not agree on their phases.
pub fn whole_run(profile: &ProcessProfile) -> PhaseProfile {
    PhaseProfile {
        begins_after: None,
        // The last synchronisation belongs to the phase that began last, or in which the run ended.
        ends_in: profile.phases.iter().max_by_key(|p| p.first_index).and_then(|p| p.ends_in),
        first_index: 0,
        last_index: 0,
        instances: 1,
        first_begin_ns: 0,
        duration_ns: profile.phases.iter().map(|phase| phase.duration_ns).sum(),
        values: values_of(profile.phases.iter()),
    }
}

/// Returns the summed values of several phases.
pub fn values_of<'p>(phases: impl Iterator<Item = &'p PhaseProfile>) -> Vec<(NodeId, NodeValue)> {
    let mut values: BTreeMap<NodeId, NodeValue> = BTreeMap::new();
    for (node, value) in phases.flat_map(|phase| &phase.values) {
        values.entry(*node).or_default().add(value);
    }
    values.into_iter().collect()
}

/// Merges the phases inside of each of these parts of the run, given by first and last index.
/// Returns the resulting phases, and the index of the resulting phase for each phase of the
/// profile. A merged phase ends in the synchronisation of the member with the most instances.
pub fn unify_phases(
    profile: &ProcessProfile,
    parts: &[(u64, u64)],
) -> (Vec<PhaseProfile>, Vec<usize>) {
    let part = |phase: &PhaseProfile| {
        let index = phase.first_index;
        parts.iter().position(|(first, last)| (*first..=*last).contains(&index))
    };
    let mut members: Vec<Vec<&PhaseProfile>> = Vec::new();
    let mut by_part: BTreeMap<usize, usize> = BTreeMap::new();
    let mut places = Vec::new();
    for phase in &profile.phases {
        let new = members.len();
        let place = part(phase).map_or(new, |part| *by_part.entry(part).or_insert(new));
        if place == new {
            members.push(Vec::new());
        }
        members[place].push(phase);
        places.push(place);
    }
    let whole = |members: Vec<&PhaseProfile>| {
        let part = part(members.first()?).map(|part| parts[part]);
        let first = members.iter().min_by_key(|phase| phase.first_index)?;
        let most =
            members.iter().max_by_key(|it| (it.instances, std::cmp::Reverse(it.first_index)))?;
        Some(PhaseProfile {
            first_index: part.map_or(first.first_index, |(first, _)| first),
            ends_in: most.ends_in,
            last_index: members.iter().map(|phase| phase.last_index).max()?,
            instances: members.iter().map(|phase| phase.instances).sum(),
            duration_ns: members.iter().map(|phase| phase.duration_ns).sum(),
            values: values_of(members.iter().copied()),
            ..**first
        })
    };
    (members.into_iter().filter_map(whole).collect(), places)
}
