//! Firefox Profiler's processed profile with two processes: the totals of each lane, as samples
//! with weights in the order of the call tree, and the rows of the run's timeline if it is known.
//! Wrapped calls and phases are markers.

use std::io::Write;

use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CpuDelta, Frame, FrameFlags, FrameInfo, MarkerFieldFlags,
    MarkerFieldFormat, MarkerTiming, ProcessHandle, Profile, ReferenceTimestamp, SamplingInterval,
    StackHandle, StaticSchemaMarker, StaticSchemaMarkerField, StringHandle, ThreadHandle,
    Timestamp, WeightType,
};
use serde_json::Value;

use crate::call_forest::Span;
use crate::iteration_lanes::{LoopLanes, innermost};
use crate::perfetto::{TIME, TOTALS, phase_name, row_name};
use crate::{CallForest, ExportError, TimelineCells};
use plimsoll_summary::Label;

/// Microseconds per millisecond. Weights of samples are whole numbers in the library, and
/// milliseconds in the file.
const WEIGHTS_PER_MS: f64 = 1e3;
const NS_PER_WEIGHT: u64 = 1000;
/// Samples lie at least this far apart in the view of totals, which have no period.
const TOTALS_INTERVAL_NS: u64 = 1_000_000;

pub fn write(
    forest: &CallForest<'_>,
    timeline: Option<&TimelineCells>,
    to: &mut dyn Write,
) -> Result<(), ExportError> {
    let column_ns = timeline.map(|cells| cells.begin_ns(1) - cells.begin_ns(0));
    let interval = SamplingInterval::from_nanos(column_ns.unwrap_or(TOTALS_INTERVAL_NS).max(1));
    let reference = ReferenceTimestamp::from_millis_since_unix_epoch(0.0);
    let profile = Profile::new(&forest.title(), reference, interval);
    let mut export = Export::new(forest, profile);
    let totals = export.process(1, TOTALS);
    for (tid, lane) in (1..).zip(&forest.lanes) {
        let thread = export.thread(totals, tid, &lane.name);
        export.add_lane(thread, &forest.own_s(lane)?);
    }
    if timeline.is_some() || !forest.summary.phases.is_empty() {
        let time = export.process(2, TIME);
        let first = forest.lanes.len() as u32 + 1;
        let phases = export.thread(time, first, "phases");
        export.add_phases(phases);
        let rows = timeline
            .into_iter()
            .flat_map(|cells| (0..cells.rows().len()).map(move |row| (cells, row)));
        for (tid, (cells, row)) in (first + 1..).zip(rows) {
            let thread = export.thread(time, tid, &row_name(&cells.rows()[row].ranks));
            export.add_row(thread, cells, row);
        }
    }
    export.finish(to)
}

/// Writes the representative iterations of loops: a process for each loop, a thread for each
/// cluster.
pub fn write_iterations(
    forest: &CallForest<'_>,
    loops: &[LoopLanes],
    to: &mut dyn Write,
) -> Result<(), ExportError> {
    let interval = SamplingInterval::from_nanos(TOTALS_INTERVAL_NS);
    let reference = ReferenceTimestamp::from_millis_since_unix_epoch(0.0);
    let mut export = Export::new(forest, Profile::new(&forest.title(), reference, interval));
    let mut tids = 1..;
    for (pid, it) in (1..).zip(loops) {
        let process = export.process(pid, &it.name);
        for (lane, tid) in it.lanes.iter().zip(&mut tids) {
            let thread = export.thread(process, tid, &lane.name);
            export.add_iteration(thread, &lane.spans);
        }
    }
    export.finish(to)
}

/// A profile that is being made.
struct Export<'a> {
    forest: &'a CallForest<'a>,
    profile: Profile,
    /// By frame of the forest.
    names: Vec<StringHandle>,
    categories: Categories,
}

struct Categories {
    computation: CategoryHandle,
    waiting: CategoryHandle,
    synchronisation: CategoryHandle,
    transfer: CategoryHandle,
    communication: CategoryHandle,
}

impl<'a> Export<'a> {
    fn new(forest: &'a CallForest<'a>, mut profile: Profile) -> Self {
        let names = forest
            .frames
            .iter()
            .map(|frame| profile.intern_string(&frame.name_with_line))
            .collect();
        let categories = Categories {
            computation: profile.add_category("Computation", CategoryColor::Orange),
            waiting: profile.add_category("Waiting", CategoryColor::Green),
            synchronisation: profile.add_category("Synchronisation", CategoryColor::Purple),
            transfer: profile.add_category("Data transfer", CategoryColor::Blue),
            communication: profile.add_category("Communication", CategoryColor::LightBlue),
        };
        Self { forest, profile, names, categories }
    }

    /// Writes the profile as JSON.
    fn finish(mut self, to: &mut dyn Write) -> Result<(), ExportError> {
        self.profile.set_symbolicated(true);
        let mut json = serde_json::to_value(&self.profile).map_err(std::io::Error::from)?;
        adapt_samples(&mut json);
        serde_json::to_writer(&mut *to, &json).map_err(std::io::Error::from)?;
        Ok(to.write_all(b"\n")?)
    }

    fn process(&mut self, pid: u32, name: &str) -> ProcessHandle {
        self.profile.add_process(name, pid, timestamp(0))
    }

    fn thread(&mut self, process: ProcessHandle, tid: u32, name: &str) -> ThreadHandle {
        let thread = self.profile.add_thread(process, tid, timestamp(0), false);
        self.profile.set_thread_name(thread, name);
        self.profile.set_thread_samples_weight_type(thread, WeightType::TracingMs);
        self.profile.set_thread_show_markers_in_timeline(thread, true);
        thread
    }

    /// Adds the totals of a lane: a sample where each context's own time begins.
    fn add_lane(&mut self, thread: ThreadHandle, own_s: &[f64]) {
        let mut stacks: Vec<Option<StackHandle>> = vec![None; self.forest.nodes.len()];
        let mut samples = Vec::new();
        let mut end_ns = 0;
        for span in self.forest.spans(own_s) {
            let node = self.forest.nodes[span.node as usize];
            let outer = node.parent.and_then(|parent| stacks[parent as usize]);
            let stack = self.stack(thread, outer, span.node);
            stacks[span.node as usize] = Some(stack);
            let span_end_ns = span.begin_ns + span.inclusive_ns;
            if span.own_ns > 0 {
                samples.push((span_end_ns - span.own_ns, span.own_ns, stack));
            }
            end_ns = end_ns.max(span_end_ns);
            self.add_region(thread, span.node, stack, (span.begin_ns, span_end_ns));
        }
        samples.sort_by_key(|(begin_ns, ..)| *begin_ns);
        for (begin_ns, own_ns, stack) in samples {
            self.add_sample(thread, begin_ns, own_ns, Some(stack));
        }
        // The last sample lasts until the next one.
        self.add_sample(thread, end_ns, 0, None);
        self.profile.set_thread_end_time(thread, timestamp(end_ns));
    }

    /// Adds a representative iteration: a sample where the innermost call or loop changes.
    fn add_iteration(&mut self, thread: ThreadHandle, spans: &[Span]) {
        let mut end_ns = 0;
        for (node, begin_ns, stretch_end_ns) in innermost(spans) {
            let stack = self.whole_stack(thread, node);
            self.add_sample(thread, begin_ns, stretch_end_ns - begin_ns, Some(stack));
            end_ns = stretch_end_ns;
        }
        self.add_sample(thread, end_ns, 0, None);
        self.profile.set_thread_end_time(thread, timestamp(end_ns));
    }

    /// Adds a row of the timeline: a sample for each column.
    fn add_row(&mut self, thread: ThreadHandle, cells: &TimelineCells, row: usize) {
        let mut end_column = 0;
        for run in cells.runs(row) {
            if run.first > end_column {
                self.add_sample(thread, cells.begin_ns(end_column), 0, None);
            }
            let wait =
                Some(run.context).filter(|_| run.waits).and_then(|it| self.forest.wait_of(it));
            let stack = self.whole_stack(thread, wait.unwrap_or(run.context));
            for column in run.first..run.end {
                let begin_ns = cells.begin_ns(column);
                let width_ns = cells.begin_ns(column + 1) - begin_ns;
                self.add_sample(thread, begin_ns, width_ns, Some(stack));
            }
            let span = (cells.begin_ns(run.first), cells.begin_ns(run.end));
            self.add_region(thread, run.context, stack, span);
            end_column = run.end;
        }
        self.add_sample(thread, cells.begin_ns(end_column), 0, None);
        self.profile.set_thread_end_time(thread, timestamp(cells.begin_ns(end_column)));
    }

    fn add_phases(&mut self, thread: ThreadHandle) {
        let forest = self.forest;
        for phase in &forest.summary.phases {
            let begin_ns = (phase.begin_s.max(0.0) * 1e9).round() as u64;
            let timing = match phase.instances {
                0 | 1 => {
                    let end_ns = begin_ns + (phase.duration_s.max(0.0) * 1e9).round() as u64;
                    MarkerTiming::Interval(timestamp(begin_ns), timestamp(end_ns))
                }
                _ => MarkerTiming::Instant(timestamp(begin_ns)),
            };
            let name = self.profile.intern_string(&phase_name(phase));
            let instances = phase.instances as f64;
            self.profile.add_marker(thread, timing, PhaseMarker { name, instances });
        }
    }

    /// Adds the marker of a wrapped call.
    fn add_region(
        &mut self,
        thread: ThreadHandle,
        node: u32,
        stack: StackHandle,
        (begin_ns, end_ns): (u64, u64),
    ) {
        let context = self.forest.context(node);
        let it = self.forest.nodes[node as usize];
        if !context.calls_exact || context.calls == 0 || it.waits {
            return;
        }
        let marker = RegionMarker {
            name: self.names[it.frame as usize],
            category: self.category(node),
            label: self.profile.intern_string(context.label.name()),
            calls: context.calls as f64,
        };
        let timing = MarkerTiming::Interval(timestamp(begin_ns), timestamp(end_ns));
        let marker = self.profile.add_marker(thread, timing, marker);
        self.profile.set_marker_stack(thread, marker, Some(stack));
    }

    fn add_sample(
        &mut self,
        thread: ThreadHandle,
        begin_ns: u64,
        duration_ns: u64,
        stack: Option<StackHandle>,
    ) {
        let mut begin_ns = begin_ns;
        let mut rest = (duration_ns + NS_PER_WEIGHT / 2) / NS_PER_WEIGHT;
        // What is longer than a weight can say is several samples.
        loop {
            let weight = i32::try_from(rest).unwrap_or(i32::MAX);
            let (time, cpu) = (timestamp(begin_ns), CpuDelta::ZERO);
            self.profile.add_sample(thread, time, stack, cpu, weight);
            rest -= weight as u64;
            begin_ns += weight as u64 * NS_PER_WEIGHT;
            if rest == 0 {
                return;
            }
        }
    }

    fn whole_stack(&mut self, thread: ThreadHandle, node: u32) -> StackHandle {
        let mut stack = None;
        for node in self.forest.node_path(node) {
            stack = Some(self.stack(thread, stack, node));
        }
        stack.unwrap_or_else(|| self.stack(thread, None, node))
    }

    fn stack(
        &mut self,
        thread: ThreadHandle,
        outer: Option<StackHandle>,
        node: u32,
    ) -> StackHandle {
        let frame = self.forest.nodes[node as usize].frame;
        let info = FrameInfo {
            frame: Frame::Label(self.names[frame as usize]),
            category_pair: self.category(node).into(),
            flags: FrameFlags::empty(),
        };
        let frame = self.profile.intern_frame(thread, info);
        self.profile.intern_stack(thread, outer, frame)
    }

    fn category(&self, node: u32) -> CategoryHandle {
        let label = self.forest.context(node).label;
        match () {
            () if self.forest.nodes[node as usize].waits => self.categories.waiting,
            () if label.is_a(Label::Wait) => self.categories.waiting,
            () if label.is_a(Label::CollectiveSynchronisation) => self.categories.synchronisation,
            () if label.is_a(Label::DataTransfer) => self.categories.transfer,
            () if label.is_a(Label::Communication) => self.categories.communication,
            () => self.categories.computation,
        }
    }
}

fn timestamp(ns: u64) -> Timestamp {
    Timestamp::from_nanos_since_reference(ns)
}

/// Makes milliseconds of all weights, and leaves out the CPU time of samples: it is not known, and
/// the viewer draws tracks without height where it is 0.
fn adapt_samples(profile: &mut Value) {
    let threads = profile["threads"].as_array_mut().into_iter().flatten();
    for thread in threads {
        let samples = &mut thread["samples"];
        if let Some(columns) = samples.as_object_mut() {
            columns.remove("threadCPUDelta");
        }
        let weights = samples["weight"].as_array_mut().into_iter().flatten();
        for weight in weights {
            *weight = Value::from(weight.as_f64().unwrap_or(0.0) / WEIGHTS_PER_MS);
        }
    }
}

/// A wrapped call.
struct RegionMarker {
    name: StringHandle,
    category: CategoryHandle,
    label: StringHandle,
    calls: f64,
}

impl StaticSchemaMarker for RegionMarker {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "Region";
    const CHART_LABEL: Option<&'static str> = Some("{marker.name}");
    const TABLE_LABEL: Option<&'static str> =
        Some("{marker.name} ({marker.data.calls} calls, {marker.data.label})");
    const DESCRIPTION: Option<&'static str> =
        Some("A wrapped call, measured from entry to exit; all calls in one calling context.");
    const FIELDS: &'static [StaticSchemaMarkerField] = &[
        StaticSchemaMarkerField {
            key: "label",
            label: "Label",
            format: MarkerFieldFormat::String,
            flags: MarkerFieldFlags::SEARCHABLE,
        },
        StaticSchemaMarkerField {
            key: "calls",
            label: "Calls of all ranks in the run",
            format: MarkerFieldFormat::Integer,
            flags: MarkerFieldFlags::empty(),
        },
    ];

    fn name(&self, _profile: &mut Profile) -> StringHandle {
        self.name
    }

    fn category(&self, _profile: &mut Profile) -> CategoryHandle {
        self.category
    }

    fn string_field_value(&self, _field: u32) -> StringHandle {
        self.label
    }

    fn number_field_value(&self, _field: u32) -> f64 {
        self.calls
    }
}

/// A phase.
struct PhaseMarker {
    name: StringHandle,
    instances: f64,
}

impl StaticSchemaMarker for PhaseMarker {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "Phase";
    const CHART_LABEL: Option<&'static str> = Some("{marker.name}");
    const FIELDS: &'static [StaticSchemaMarkerField] = &[StaticSchemaMarkerField {
        key: "instances",
        label: "Instances",
        format: MarkerFieldFormat::Integer,
        flags: MarkerFieldFlags::empty(),
    }];

    fn name(&self, _profile: &mut Profile) -> StringHandle {
        self.name
    }

    fn category(&self, _profile: &mut Profile) -> CategoryHandle {
        CategoryHandle::OTHER
    }

    fn string_field_value(&self, _field: u32) -> StringHandle {
        self.name
    }

    fn number_field_value(&self, _field: u32) -> f64 {
        self.instances
    }
}
