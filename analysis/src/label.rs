//! What a calling context's time is for: the labels of PPoPP20, 5.2.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The label of a calling context. The names on the wire are those that [`fmt::Display`] writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Label {
    /// The program's own work.
    Computation,
    /// Communication of no closer known kind.
    Communication,
    /// A collective that no rank leaves before all have entered it.
    CollectiveSynchronisation,
    /// Moving data, of no closer known kind.
    DataTransfer,
    /// Moving a message between processes.
    Message,
    /// Copying within the memory of a node.
    MemoryCopy,
    /// Moving data to or from an accelerator.
    Device,
    /// Reading or writing files.
    Io,
    /// Waiting, for something of no closer known kind.
    Wait,
    /// Waiting for another process or thread.
    WaitPartner,
    /// Waiting for a lock.
    WaitLock,
    /// Waiting for a socket, a pipe, an event or a child process.
    WaitResource,
}

impl Label {
    /// Every label, in the order of the hierarchy.
    pub const ALL: [Self; 12] = [
        Self::Computation,
        Self::Communication,
        Self::CollectiveSynchronisation,
        Self::DataTransfer,
        Self::Message,
        Self::MemoryCopy,
        Self::Device,
        Self::Io,
        Self::Wait,
        Self::WaitPartner,
        Self::WaitLock,
        Self::WaitResource,
    ];

    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Computation => "computation",
            Self::Communication => "communication",
            Self::CollectiveSynchronisation => "collective_synchronisation",
            Self::DataTransfer => "data_transfer",
            Self::Message => "message",
            Self::MemoryCopy => "memory_copy",
            Self::Device => "device",
            Self::Io => "io",
            Self::Wait => "wait",
            Self::WaitPartner => "wait_partner",
            Self::WaitLock => "wait_lock",
            Self::WaitResource => "wait_resource",
        }
    }
}

impl fmt::Display for Label {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_and_wire_agree() {
        for label in Label::ALL {
            assert_eq!(serde_json::to_value(label).unwrap(), label.to_string());
        }
    }
}
