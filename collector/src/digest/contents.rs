//! Contents of one file of a spool other than records.

use std::collections::BTreeMap;

use crate::spooling::meta::{Meta, Status};
use plimsoll_spool::{Address, Kind, Step};

/// Contents of one file other than records.
#[derive(Default)]
pub(super) struct Found {
    pub(super) values: Vec<Meta>,
    /// Latest status of each process.
    pub(super) statuses: BTreeMap<u32, Status>,
    pub(super) note: Option<serde_json::Value>,
    pub(super) addresses: Vec<(u32, u32, Vec<Address>)>,
    pub(super) damages: Vec<String>,
    /// Last complete round of the file, and the offset of the frame that says so.
    pub(super) round: Option<(u32, u64)>,
    /// Round of the journal, and for each stream the number of the frame from which the journal
    /// continues it.
    pub(super) journal: Option<(u32, Vec<(u32, u32)>)>,
}

impl Found {
    pub(super) fn take(&mut self, step: &Step<'_>) {
        let frame = match step {
            Step::Frame(frame) => frame,
            Step::Missing(stream, frames) => {
                let (kind, number) = (stream.kind, stream.number);
                self.damages
                    .push(format!("frames {frames:?} of stream {number} of {kind:?} are lost"));
                return;
            }
            Step::Damaged(damage) => return self.damages.push(damage.to_string()),
        };
        let number = frame.info.stream.number;
        let outcome = match frame.info.stream.kind {
            Kind::Meta => frame.meta::<Meta>().map(|value| match value {
                Meta::Round(round) => self.round = Some((round, frame.info.offset)),
                Meta::Journal { round, next } => self.journal = Some((round, next)),
                Meta::Statuses(statuses) => {
                    self.statuses
                        .extend(statuses.into_iter().map(|status| (status.process, status)));
                }
                Meta::Note(note) => self.note = Some(note),
                value => self.values.push(value),
            }),
            Kind::Addresses => frame.addresses().map(|addresses| {
                let mut each = Vec::new();
                let mut first = None;
                for address in addresses {
                    let Ok((id, address)) = address else { break };
                    first.get_or_insert(id);
                    each.push(address);
                }
                self.addresses.push((number, first.unwrap_or(0), each));
            }),
            Kind::Records | Kind::Ring | Kind::Index => Ok(()),
        };
        if let Err(error) = outcome {
            self.damages.push(format!("at byte {}: {error}", frame.info.offset));
        }
    }
}
