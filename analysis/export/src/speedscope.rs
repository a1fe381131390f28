//! speedscope's own format: <https://www.speedscope.app/file-format-schema.json>. Each lane is a
//! sampled profile, and the weight of a sample is the time of one context in seconds.

use std::io::Write;

use serde::Serialize;

use crate::{CallForest, ExportError};

#[derive(Serialize)]
struct File<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    name: String,
    exporter: &'static str,
    shared: Shared<'a>,
    profiles: Vec<Profile<'a>>,
}

#[derive(Serialize)]
struct Shared<'a> {
    frames: Vec<Frame<'a>>,
}

#[derive(Serialize)]
struct Frame<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Profile<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'a str,
    unit: &'static str,
    start_value: f64,
    end_value: f64,
    samples: Vec<Vec<u32>>,
    weights: Vec<f64>,
}

pub fn write(forest: &CallForest<'_>, to: &mut dyn Write) -> Result<(), ExportError> {
    let frames = forest.frames.iter();
    let frames = frames.map(|frame| Frame {
        name: &frame.name,
        file: frame.file.as_deref(),
        line: frame.line,
    });
    let mut file = File {
        schema: "https://www.speedscope.app/file-format-schema.json",
        name: forest.title(),
        exporter: concat!("plimsoll ", env!("CARGO_PKG_VERSION")),
        shared: Shared { frames: frames.collect() },
        profiles: Vec::new(),
    };
    for lane in &forest.lanes {
        let mut profile = Profile {
            kind: "sampled",
            name: &lane.name,
            unit: "seconds",
            start_value: 0.0,
            end_value: 0.0,
            samples: Vec::new(),
            weights: Vec::new(),
        };
        for (node, own_s) in (0..).zip(forest.own_s(lane)?).filter(|(_, own_s)| *own_s > 0.0) {
            profile.samples.push(forest.path(node));
            profile.weights.push(own_s);
            profile.end_value += own_s;
        }
        file.profiles.push(profile);
    }
    serde_json::to_writer(&mut *to, &file).map_err(std::io::Error::from)?;
    Ok(to.write_all(b"\n")?)
}
