//! The records of one thread on their way into a frame.

use plimsoll_wire::record::Record;

use super::checkpoint::ReplayCheckpoint;
use super::columns::Builder;
use super::payload::Payload;
use super::thinning::Thinning;

/// The columns of one thread.
pub(super) struct Thread {
    pub(super) builder: Builder,
    pub(super) thinning: Thinning,
    /// State at the begin of its next frame; `None` unless frames must stand alone.
    checkpoint: Option<ReplayCheckpoint>,
    /// Calls since its size was looked at.
    pub(super) calls: u32,
}

impl Thread {
    /// Creates a thread that begins, with its sampling period in stamps; `checkpoint`: its frames
    /// must stand alone.
    pub(super) fn new(period: Option<u64>, checkpoint: bool) -> Self {
        Self {
            builder: Builder::default(),
            thinning: Thinning::new(period),
            checkpoint: checkpoint.then(|| ReplayCheckpoint::new(period)),
            calls: 0,
        }
    }

    /// Passes a record on, or holds samples back; returns the number of lost ones.
    pub(super) fn pass(&mut self, record: &Record<'_>, level: u32) -> u64 {
        let Self { builder, thinning, checkpoint, .. } = self;
        let mut lost = 0;
        thinning.pass(record, level, |record, merged| {
            lost += add(builder, checkpoint.as_mut(), record, merged);
        });
        lost
    }

    /// Replaces `payload` by records that restore a reader's state; false if the state is unknown.
    /// Records held back must be released first.
    pub(super) fn restate(&self, payload: &mut Payload) -> bool {
        let mut builder = Builder::default();
        self.checkpoint.iter().for_each(|checkpoint| begin(&mut builder, checkpoint));
        let is_known = builder.records() > 0;
        builder.finish(payload);
        is_known
    }

    /// Takes what it has held back; says how many records are lost.
    pub(super) fn release(&mut self) -> u64 {
        let Self { builder, thinning, checkpoint, .. } = self;
        let mut lost = 0;
        thinning.release(|record, merged| {
            lost += add(builder, checkpoint.as_mut(), record, merged);
        });
        lost
    }
}

/// Begins columns with where a thread stands.
fn begin(builder: &mut Builder, checkpoint: &ReplayCheckpoint) {
    // Its stacks are no deeper than those that a builder takes.
    checkpoint.restore(|record| {
        let _ = builder.push(record);
    });
    builder.end_prelude();
}

/// Adds a record, or a note that it is lost, and says how many were.
fn add(
    builder: &mut Builder,
    checkpoint: Option<&mut ReplayCheckpoint>,
    record: &Record<'_>,
    merged: u64,
) -> u64 {
    if let (0, Some(checkpoint)) = (builder.records(), checkpoint.as_deref()) {
        begin(builder, checkpoint);
    }
    builder.merge(merged);
    let taken = builder.push(record).is_ok();
    // The stream's own word for it: its reader forgets the stack, and waits for a whole one.
    let lost = Record::Lost { records: 1 };
    let record = if taken { record } else { &lost };
    if !taken {
        let _ = builder.push(record);
    }
    if let Some(checkpoint) = checkpoint {
        checkpoint.follow(record);
    }
    u64::from(!taken)
}
