//! Labels: the purpose of a calling context's time (PPoPP20, 5.2).

use std::fmt;

use serde::{Deserialize, Serialize};

/// Label of a calling context. [`fmt::Display`] writes the names of the JSON form.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Label {
    /// The program's own work.
    #[default]
    Computation,
    /// Communication of unknown kind.
    Communication,
    /// A collective that no rank leaves before all have entered it.
    CollectiveSynchronisation,
    /// Moving data of unknown kind.
    DataTransfer,
    /// Moving a message between processes.
    Message,
    /// Copying within the memory of a node.
    MemoryCopy,
    /// Moving data to or from an accelerator.
    Device,
    /// Reading or writing files.
    Io,
    /// Waiting of unknown kind.
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

    /// Returns the label that this one refines; `None` at the top.
    pub fn parent(self) -> Option<Self> {
        match self {
            Self::Computation | Self::Communication => None,
            Self::CollectiveSynchronisation | Self::DataTransfer | Self::Wait => {
                Some(Self::Communication)
            }
            Self::Message | Self::MemoryCopy | Self::Device | Self::Io => Some(Self::DataTransfer),
            Self::WaitPartner | Self::WaitLock | Self::WaitResource => Some(Self::Wait),
        }
    }

    /// Returns the label and the labels that it refines, most specific first.
    pub fn lineage(self) -> impl Iterator<Item = Self> {
        std::iter::successors(Some(self), |label| label.parent())
    }

    /// Returns whether the label is `other` or refines it.
    pub fn is_a(self, other: Self) -> bool {
        self.lineage().any(|label| label == other)
    }

    /// Returns the most specific label that both refine; `None` for computation and communication.
    pub fn common(self, other: Self) -> Option<Self> {
        self.lineage().find(|label| other.is_a(*label))
    }

    /// Returns the name in JSON.
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

    #[test]
    fn labels_refine_each_other() {
        assert!(Label::WaitLock.is_a(Label::Wait) && Label::WaitLock.is_a(Label::Communication));
        assert!(!Label::Wait.is_a(Label::WaitLock) && !Label::Io.is_a(Label::Wait));
        assert_eq!(Label::Io.common(Label::Message), Some(Label::DataTransfer));
        assert_eq!(Label::Io.common(Label::WaitLock), Some(Label::Communication));
        assert_eq!(Label::Io.common(Label::Computation), None);
        for a in Label::ALL {
            assert_eq!(a.common(a), Some(a));
            for b in Label::ALL {
                assert_eq!(a.common(b), b.common(a));
            }
        }
    }
}
