//! Perfetto's trace of track events with two processes: the totals of each lane, laid out in the
//! order of the call tree, and the rows of the run's timeline if it is known, with the phases. A
//! slice's category is the label of its context; wrapped calls carry their number of calls.

use std::io::Write;

use prost::Message;

use crate::call_forest::Span;
use crate::iteration_lanes::LoopLanes;
use crate::perfetto_messages::{
    CounterDescriptor, DebugAnnotation, EventType, Interned, InternedData, ProcessDescriptor,
    SEQUENCE_CLEARED, SEQUENCE_NEEDED, ThreadDescriptor, TracePacket, TrackDescriptor, TrackEvent,
};
use crate::{CallForest, ExportError, TimelineCells};
use plimsoll_summary::Label;
use plimsoll_summary::Phase;

/// Key of the field of a trace that holds its packets: field 1, length-delimited.
const PACKET_KEY: u8 = 0x0a;
/// Any number but 0: all packets belong to one sequence.
const SEQUENCE: u32 = 1;
const TOTALS_PID: i32 = 1;
const TIME_PID: i32 = 2;
/// Name of the process with the totals.
pub const TOTALS: &str = "totals, in the order of the call tree (not of time)";
/// Name of the process with phases and timeline.
pub const TIME: &str = "timeline, in the order of time";

pub fn write(
    forest: &CallForest<'_>,
    timeline: Option<&TimelineCells>,
    to: &mut dyn Write,
) -> Result<(), ExportError> {
    let mut trace = Trace { to, tracks: 0, tids: 0 };
    trace.intern(forest)?;
    trace.process(TOTALS_PID, &format!("{}: {TOTALS}", forest.title()))?;
    for lane in &forest.lanes {
        let track = trace.thread(TOTALS_PID, &lane.name)?;
        write_lane(&mut trace, track, forest, &forest.own_s(lane)?)?;
    }
    if timeline.is_none() && forest.summary.phases.is_empty() {
        return Ok(());
    }
    let process = trace.process(TIME_PID, &format!("{}: {TIME}", forest.title()))?;
    write_phases(&mut trace, process, &forest.summary.phases)?;
    if let Some(cells) = timeline {
        for (row, of) in cells.rows().iter().enumerate() {
            let track = trace.thread(TIME_PID, &row_name(&of.ranks))?;
            write_row(&mut trace, track, forest, cells, row)?;
            write_waits(&mut trace, track, cells, row)?;
        }
    }
    Ok(())
}

/// Writes the representative iterations of loops: a process for each loop, a thread for each
/// cluster.
pub fn write_iterations(
    forest: &CallForest<'_>,
    loops: &[LoopLanes],
    to: &mut dyn Write,
) -> Result<(), ExportError> {
    let mut trace = Trace { to, tracks: 0, tids: loops.len() as i64 };
    trace.intern(forest)?;
    for (pid, it) in (1..).zip(loops) {
        trace.process(pid, &format!("{}: {}", forest.title(), it.name))?;
        for lane in &it.lanes {
            let track = trace.thread(pid, &lane.name)?;
            write_spans(&mut trace, track, forest, &lane.spans)?;
        }
    }
    Ok(())
}

/// Returns the name of a row of the timeline.
pub fn row_name(ranks: &str) -> String {
    let noun = if ranks.contains(['-', ',']) { "ranks" } else { "rank" };
    format!("{noun} {ranks}")
}

/// Writes nested slices: each lane's totals.
fn write_lane(
    trace: &mut Trace<'_>,
    track: u64,
    forest: &CallForest<'_>,
    own_s: &[f64],
) -> Result<(), ExportError> {
    write_spans(trace, track, forest, &forest.spans(own_s))
}

fn write_spans(
    trace: &mut Trace<'_>,
    track: u64,
    forest: &CallForest<'_>,
    spans: &[Span],
) -> Result<(), ExportError> {
    // Ends of the slices that are open, the innermost last.
    let mut open: Vec<u64> = Vec::new();
    for span in spans {
        while let Some(end_ns) = open.pop_if(|end_ns| *end_ns <= span.begin_ns) {
            trace.end(track, end_ns)?;
        }
        trace.begin(track, span.begin_ns, slice(forest, span.node))?;
        open.push(span.begin_ns + span.inclusive_ns);
    }
    while let Some(end_ns) = open.pop() {
        trace.end(track, end_ns)?;
    }
    Ok(())
}

/// Writes a row of the timeline: what neighbouring cells have in common is one slice.
fn write_row(
    trace: &mut Trace<'_>,
    track: u64,
    forest: &CallForest<'_>,
    cells: &TimelineCells,
    row: usize,
) -> Result<(), ExportError> {
    let mut open: Vec<u32> = Vec::new();
    let mut end_column = 0;
    for run in cells.runs(row) {
        let wait = Some(run.context).filter(|_| run.waits).and_then(|it| forest.wait_of(it));
        let path = forest.node_path(wait.unwrap_or(run.context));
        let common = match run.first == end_column {
            true => open.iter().zip(&path).take_while(|(one, other)| one == other).count(),
            false => 0,
        };
        for _ in common..open.len() {
            trace.end(track, cells.begin_ns(end_column))?;
        }
        for node in &path[common..] {
            trace.begin(track, cells.begin_ns(run.first), slice(forest, *node))?;
        }
        (open, end_column) = (path, run.end);
    }
    for _ in open {
        trace.end(track, cells.begin_ns(end_column))?;
    }
    Ok(())
}

/// Writes how much of each column a row waits, in percent, where that changes.
fn write_waits(
    trace: &mut Trace<'_>,
    thread: u64,
    cells: &TimelineCells,
    row: usize,
) -> Result<(), ExportError> {
    let track =
        trace.counter(thread, &format!("waiting of {}", row_name(&cells.rows()[row].ranks)))?;
    let mut last = None;
    for (column, fraction) in cells.wait_fractions(row).enumerate() {
        let percent = (100.0 * fraction).round();
        if last != Some(percent) {
            let event = TrackEvent {
                kind: EventType::Counter.into(),
                double_counter_value: Some(percent),
                ..TrackEvent::default()
            };
            trace.event(track, cells.begin_ns(column), event)?;
            last = Some(percent);
        }
    }
    Ok(())
}

/// Writes phases: one with a single instance as a slice, the begin of others as an instant.
fn write_phases(trace: &mut Trace<'_>, process: u64, phases: &[Phase]) -> Result<(), ExportError> {
    if phases.is_empty() {
        return Ok(());
    }
    let track = trace.track(process, "phases")?;
    for phase in phases {
        let begin_ns = nanoseconds(phase.begin_s);
        let is_one = phase.instances <= 1;
        let event = TrackEvent {
            kind: if is_one { EventType::SliceBegin } else { EventType::Instant }.into(),
            name: Some(phase_name(phase)),
            debug_annotations: vec![count("instances", phase.instances)],
            ..TrackEvent::default()
        };
        trace.event(track, begin_ns, event)?;
        if is_one {
            trace.end(track, begin_ns + nanoseconds(phase.duration_s))?;
        }
    }
    Ok(())
}

/// Returns the name of a phase: its number, and how often it ran.
pub fn phase_name(phase: &Phase) -> String {
    match phase.instances {
        0 | 1 => format!("phase {}", phase.id),
        instances => format!("phase {} begins, {instances} instances", phase.id),
    }
}

fn nanoseconds(time_s: f64) -> u64 {
    (time_s * 1e9).max(0.0).round() as u64
}

fn slice(forest: &CallForest<'_>, node: u32) -> TrackEvent {
    let it = forest.nodes[node as usize];
    let context = forest.context(node);
    let is_region = context.calls_exact && context.calls > 0 && !it.waits;
    let label = if it.waits { Label::Wait } else { context.label };
    TrackEvent {
        name_iid: Some(u64::from(it.frame) + 1),
        category_iids: vec![category(label)],
        debug_annotations: match is_region {
            true => vec![count("calls of all ranks", context.calls)],
            false => Vec::new(),
        },
        ..TrackEvent::default()
    }
}

/// Returns the id of the category of a label.
fn category(label: Label) -> u64 {
    (1..).zip(Label::ALL).find(|(_, other)| *other == label).map_or(0, |(iid, _)| iid)
}

fn count(name: &str, value: u64) -> DebugAnnotation {
    DebugAnnotation { name: name.into(), uint_value: Some(value), string_value: None }
}

/// A trace that is being written.
struct Trace<'a> {
    to: &'a mut dyn Write,
    tracks: u64,
    tids: i64,
}

impl Trace<'_> {
    fn put(&mut self, packet: TracePacket) -> Result<(), ExportError> {
        let packet = TracePacket { trusted_packet_sequence_id: SEQUENCE, ..packet };
        self.to.write_all(&[PACKET_KEY])?;
        Ok(self.to.write_all(&packet.encode_length_delimited_to_vec())?)
    }

    /// Writes the names that events refer to by id.
    fn intern(&mut self, forest: &CallForest<'_>) -> Result<(), ExportError> {
        let numbered = |names: Vec<&str>| -> Vec<Interned> {
            let names = (1..).zip(names);
            names.map(|(iid, name)| Interned { iid, name: name.into() }).collect()
        };
        let names = forest.frames.iter().map(|frame| frame.name_with_line.as_str()).collect();
        let interned = InternedData {
            event_categories: numbered(Label::ALL.iter().map(|label| label.name()).collect()),
            event_names: numbered(names),
        };
        let (interned_data, sequence_flags) = (Some(interned), SEQUENCE_CLEARED);
        self.put(TracePacket { interned_data, sequence_flags, ..TracePacket::default() })
    }

    fn describe(&mut self, track: TrackDescriptor) -> Result<u64, ExportError> {
        self.tracks += 1;
        let uuid = self.tracks;
        let track_descriptor = Some(TrackDescriptor { uuid, ..track });
        self.put(TracePacket { track_descriptor, ..TracePacket::default() })?;
        Ok(uuid)
    }

    fn process(&mut self, pid: i32, name: &str) -> Result<u64, ExportError> {
        let process = Some(ProcessDescriptor { pid, process_name: name.into() });
        self.describe(TrackDescriptor { process, ..TrackDescriptor::default() })
    }

    fn thread(&mut self, pid: i32, name: &str) -> Result<u64, ExportError> {
        // No thread has its process's number, which is a main thread's.
        self.tids += 1;
        let tid = i64::from(TIME_PID) + self.tids;
        let thread = Some(ThreadDescriptor { pid, tid, thread_name: name.into() });
        self.describe(TrackDescriptor { thread, ..TrackDescriptor::default() })
    }

    fn track(&mut self, parent: u64, name: &str) -> Result<u64, ExportError> {
        let (parent_uuid, name) = (Some(parent), Some(name.into()));
        self.describe(TrackDescriptor { parent_uuid, name, ..TrackDescriptor::default() })
    }

    fn counter(&mut self, parent: u64, name: &str) -> Result<u64, ExportError> {
        let (parent_uuid, name) = (Some(parent), Some(name.into()));
        let counter = Some(CounterDescriptor { unit_name: "%".into() });
        self.describe(TrackDescriptor { parent_uuid, name, counter, ..TrackDescriptor::default() })
    }

    fn event(&mut self, track: u64, at_ns: u64, event: TrackEvent) -> Result<(), ExportError> {
        self.put(TracePacket {
            timestamp: Some(at_ns),
            track_event: Some(TrackEvent { track_uuid: track, ..event }),
            sequence_flags: SEQUENCE_NEEDED,
            ..TracePacket::default()
        })
    }

    fn begin(&mut self, track: u64, at_ns: u64, event: TrackEvent) -> Result<(), ExportError> {
        self.event(track, at_ns, TrackEvent { kind: EventType::SliceBegin.into(), ..event })
    }

    fn end(&mut self, track: u64, at_ns: u64) -> Result<(), ExportError> {
        let kind = EventType::SliceEnd.into();
        self.event(track, at_ns, TrackEvent { kind, ..TrackEvent::default() })
    }
}
