//! pprof's profile.proto: one sample for each context and lane, with the lane's name as the label
//! `rank`. pprof adds up the lanes; `-tagroot=rank` and `-tagfocus='rank=rank 3$'` separate them.
//! (The label's value is `rank 3` instead of `3`, which pprof would compare as a number.)

use std::collections::HashMap;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use crate::pprof_messages::{Function, Label, Line, Location, Mapping, Profile, Sample, ValueType};
use crate::{CallForest, ExportError};

pub fn write(forest: &CallForest<'_>, to: &mut dyn Write) -> Result<(), ExportError> {
    let mut strings = Strings::default();
    let mut profile = Profile {
        sample_type: vec![ValueType {
            kind: strings.index("time"),
            unit: strings.index("nanoseconds"),
        }],
        duration_nanos: nanoseconds(forest.summary.run.elapsed_s),
        ..Profile::default()
    };
    add_frames(forest, &mut profile, &mut strings);
    let rank = strings.index("rank");
    for lane in &forest.lanes {
        let label = vec![Label { key: rank, text: strings.index(&lane.name) }];
        for (node, own_s) in (0..).zip(forest.own_s(lane)?) {
            let value = nanoseconds(own_s);
            if value > 0 {
                let path = forest.path(node).into_iter().rev();
                let location_id = path.map(|frame| u64::from(frame) + 1).collect();
                profile.sample.push(Sample {
                    location_id,
                    value: vec![value],
                    label: label.clone(),
                });
            }
        }
    }
    let lanes: Vec<&str> = forest.lanes.iter().map(|lane| lane.name.as_str()).collect();
    let comments = [forest.title(), format!("Lanes: {}.", lanes.join("; "))];
    profile.comment = comments.iter().map(|comment| strings.index(comment)).collect();
    profile.string_table = strings.table;
    let mut compressed = GzEncoder::new(to, Compression::default());
    compressed.write_all(&profile.encode_to_vec())?;
    compressed.finish()?;
    Ok(())
}

/// Adds a location, a function and, once, the module of each frame. Their ids are the frame's index
/// plus 1.
fn add_frames(forest: &CallForest<'_>, profile: &mut Profile, strings: &mut Strings) {
    let mut mappings: HashMap<&str, u64> = HashMap::new();
    for (id, frame) in (1..).zip(&forest.frames) {
        let name = strings.index(&frame.name);
        let filename = strings.index(frame.file.as_deref().unwrap_or_default());
        let line = i64::from(frame.line.unwrap_or(0));
        let next = mappings.len() as u64 + 1;
        let mapping_id = *mappings.entry(&frame.module).or_insert_with(|| {
            profile.mapping.push(Mapping {
                id: next,
                filename: strings.index(&frame.module),
                has_functions: true,
                has_filenames: true,
                has_line_numbers: true,
                has_inline_frames: true,
            });
            next
        });
        let system_name = name;
        profile.function.push(Function { id, name, system_name, filename, start_line: line });
        let line = vec![Line { function_id: id, line }];
        profile.location.push(Location { id, mapping_id, line });
    }
}

fn nanoseconds(time_s: f64) -> i64 {
    (time_s * 1e9).round() as i64
}

/// The table of strings.
struct Strings {
    table: Vec<String>,
    indices: HashMap<String, i64>,
}

impl Default for Strings {
    fn default() -> Self {
        Self { table: vec![String::new()], indices: HashMap::from([(String::new(), 0)]) }
    }
}

impl Strings {
    fn index(&mut self, string: &str) -> i64 {
        if let Some(index) = self.indices.get(string) {
            return *index;
        }
        let index = self.table.len() as i64;
        self.table.push(string.into());
        self.indices.insert(string.into(), index);
        index
    }
}
