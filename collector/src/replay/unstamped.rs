//! Records without a stamp: totals and messages. A thread writes them just before a timed record,
//! and they belong to the run unless that record lies before it.

use plimsoll_wire::lengths::LengthCount;
use plimsoll_wire::lock_waits::LockWaitTotals;
use plimsoll_wire::record::{Message, PartnerMessages};
use plimsoll_wire::teams::{RegionTotals, ShareTotals, TaskTotals};

use super::Replay;
use crate::raw_tree::RawId;
use crate::region_values::RegionPlace;
use crate::replay_target::ReplayTarget;

/// Maximum number of records held. Regular streams have fewer between two timed records.
const MAX_HELD: usize = 1 << 16;

/// A record without a stamp, with contexts instead of slots.
pub(super) enum Unstamped {
    Partner(RawId, PartnerMessages),
    Message(RawId, Message),
    Region(RegionPlace, RegionTotals),
    Share(RegionPlace, u32, ShareTotals),
    Task(TaskTotals),
    TaskLength(u32, LengthCount),
    RegionLength(RegionPlace, LengthCount),
    LockWait(RegionPlace, LockWaitTotals),
}

impl Replay {
    /// Holds a record until the next timed one.
    pub(super) fn hold(&mut self, record: Unstamped, target: &mut ReplayTarget<'_>) {
        if self.unstamped.len() == MAX_HELD {
            self.add_unstamped(self.booked.unwrap_or(0), target);
        }
        self.unstamped.push(record);
    }

    /// Adds the held records to the values of the run if a timed record at `now` does not lie
    /// before the run; otherwise drops them.
    pub(super) fn add_unstamped(&mut self, now: u64, target: &mut ReplayTarget<'_>) {
        let held = std::mem::take(&mut self.unstamped);
        if now >= target.window.begin {
            held.into_iter().for_each(|record| record.add(target));
        }
    }
}

impl Unstamped {
    fn add(self, target: &mut ReplayTarget<'_>) {
        match self {
            Self::Partner(node, messages) => target.partners.add(node, &messages),
            Self::Message(node, message) => target.exemplars.offer(node, &message),
            Self::Region(place, totals) => {
                target.name_function(totals.function);
                target.regions.add(place, &totals);
            }
            Self::Share(place, number, totals) => target.regions.add_share(place, number, &totals),
            Self::Task(totals) => {
                target.name_function(totals.function);
                target.regions.add_task(&totals);
            }
            Self::TaskLength(function, length) => target.regions.add_task_length(function, length),
            Self::RegionLength(place, length) => target.regions.add_region_length(place, length),
            Self::LockWait(place, totals) => target.regions.add_lock_wait(place, &totals),
        }
    }
}
