//! Phases of a run that was broken off: the last synchronisations, which only some ranks saw, end
//! no phase.
//!
//! Such a run is cut at one time on all ranks: at the first death, or where a spool ends. That time
//! may lie between the returns of one collective on different ranks, so that some ranks have seen
//! one synchronisation more than others. Ranks of different nodes are cut at times that differ by
//! the error of their clocks, and may differ by a few synchronisations.
//!
//! A phase begins and ends with the exit of a *global* synchronisation (PPoPP20, 4), which all
//! processes leave. After the last synchronisation that all ranks saw, the run is therefore one
//! phase, which ends with the run. On ranks that saw further synchronisations, the instances in
//! between move into that phase. For that, the collector keeps the last instances of a run apart
//! from their phases ([`plimsoll_collector::digest::Digest::break_off`]).
//!
//! No time is cut off: the run of each rank could also end at its own return of the last common
//! synchronisation, but the ranks' bins of time, messages and other threads do not end there, and
//! what the ranks did last before a death is worth seeing.
//!
//! If a rank saw more further synchronisations than the collector keeps instances apart, the ranks
//! contradict each other, as in a complete run ([`crate::agreement::Matching::WholeRun`]).

use plimsoll_collector::profile::{PhaseProfile, ProcessProfile};
use serde::{Deserialize, Serialize};

use crate::phase_unification::values_of;

/// Last synchronisation that all ranks saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastCommon {
    /// Number of synchronisations that all ranks saw: one more than the index of the last one.
    seen: u64,
    /// Upper bound of the phases' last indexes, exclusive: larger than `seen` if a rank went on
    /// after the last common synchronisation.
    end: u64,
}

impl LastCommon {
    /// Returns the last synchronisation of one rank.
    pub fn of(phases: &[PhaseProfile]) -> Self {
        let after = |phase: &PhaseProfile| phase.last_index.saturating_add(1);
        let seen = phases.iter().map(|phase| match phase.ends_in {
            Some(_) => after(phase),
            None => phase.first_index,
        });
        let end = phases.iter().map(after);
        Self { seen: seen.max().unwrap_or(0), end: end.max().unwrap_or(0) }
    }

    /// Combines two sets of ranks.
    pub fn combine(self, other: Self) -> Self {
        Self { seen: self.seen.min(other.seen), end: self.end.max(other.end) }
    }

    /// Divides a rank's run at this synchronisation: its phases before contain all their instances,
    /// and the rest of the run is one phase. Leaves a profile alone that cannot be divided there.
    pub fn divide(self, profile: &mut ProcessProfile) {
        let is_after = |phase: &PhaseProfile| phase.first_index >= self.seen;
        let is_across = |phase: &PhaseProfile| !is_after(phase) && phase.last_index >= self.seen;
        if profile.phases.iter().any(is_across) {
            return;
        }
        let mut rest = PhaseProfile {
            begins_after: None,
            ends_in: None,
            first_index: self.seen,
            last_index: self.seen,
            instances: 1,
            first_begin_ns: profile.elapsed_ns,
            duration_ns: 0,
            values: Vec::new(),
        };
        let mut phases: Vec<PhaseProfile> = Vec::new();
        // The new number of each phase; `None` for the rest of the run.
        let mut numbers: Vec<Option<usize>> = Vec::new();
        for phase in std::mem::take(&mut profile.phases) {
            if is_after(&phase) {
                rest.first_begin_ns = rest.first_begin_ns.min(phase.first_begin_ns);
                absorb(&mut rest, &phase);
                numbers.push(None);
                continue;
            }
            let ends = |phase: &PhaseProfile| (phase.begins_after, phase.ends_in);
            let known = phases.iter().position(|known| ends(known) == ends(&phase));
            numbers.push(Some(known.unwrap_or(phases.len())));
            match known {
                Some(known) => {
                    let known = &mut phases[known];
                    known.last_index = known.last_index.max(phase.last_index);
                    known.instances += phase.instances;
                    absorb(known, &phase);
                }
                None => phases.push(phase),
            }
        }
        let last = phases.iter().max_by_key(|phase| phase.last_index);
        rest.begins_after = last.and_then(|phase| phase.ends_in);
        for rows in [&mut profile.rows.rows, &mut profile.subgroup_intervals.rows] {
            // Nothing that all ranks wait for ends the rest of the run.
            rows.retain(|row| row.subgroup.is_some() || row.index < self.seen);
            for row in rows {
                row.phase = numbers[row.phase as usize].unwrap_or(phases.len()) as u32;
            }
        }
        if self.end > self.seen {
            phases.push(rest);
        }
        profile.phases = phases;
    }
}

/// Adds the time and values of a phase.
fn absorb(phase: &mut PhaseProfile, other: &PhaseProfile) {
    phase.duration_ns += other.duration_ns;
    phase.values = values_of([&*phase, other].into_iter());
}
