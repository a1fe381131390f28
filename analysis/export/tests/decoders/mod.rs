//! Readers of each format, as simple as they can be: seconds by lane and frame.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use plimsoll_export::perfetto_messages::{EventType, TracePacket};
use plimsoll_export::pprof_messages::Profile;
use prost::Message;
use serde_json::Value;

use crate::generated::Totals;

fn add(totals: &mut Totals, lane: &str, path: &[String], time_s: f64) {
    for name in path.iter().collect::<BTreeSet<_>>() {
        *totals.entry((lane.into(), name.clone())).or_default() += time_s;
    }
}

pub fn collapsed(bytes: &[u8]) -> Totals {
    let mut totals = Totals::new();
    for line in std::str::from_utf8(bytes).unwrap().lines() {
        let (path, microseconds) = line.rsplit_once(' ').unwrap();
        let mut path = path.split(';').map(str::to_owned);
        let lane = path.next().unwrap();
        let time_s = microseconds.parse::<f64>().unwrap() * 1e-6;
        add(&mut totals, &lane, &path.collect::<Vec<_>>(), time_s);
    }
    totals
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("{value} is no list"))
}

fn index(value: &Value) -> usize {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no index")) as usize
}

pub fn speedscope(bytes: &[u8]) -> Totals {
    let file = json(bytes);
    let names: Vec<String> =
        list(&file["shared"]["frames"]).iter().map(|frame| text(&frame["name"])).collect();
    let mut totals = Totals::new();
    for profile in list(&file["profiles"]) {
        let mut end_s = 0.0;
        let samples = list(&profile["samples"]).iter().zip(list(&profile["weights"]));
        for (sample, weight) in samples {
            let path: Vec<String> =
                list(sample).iter().map(|frame| names[index(frame)].clone()).collect();
            let weight = weight.as_f64().unwrap();
            add(&mut totals, profile["name"].as_str().unwrap(), &path, weight);
            end_s += weight;
        }
        assert_eq!(list(&profile["samples"]).len(), list(&profile["weights"]).len());
        assert!((profile["endValue"].as_f64().unwrap() - end_s).abs() < 1e-6);
    }
    totals
}

/// Returns inclusive times from the column of exclusive times and the graph; asserts that the
/// column of inclusive times agrees.
pub fn hatchet(bytes: &[u8]) -> Totals {
    let file = json(bytes);
    let [graph] = list(&file["graph"]) else { panic!("not one graph") };
    let graph = graph.as_object().unwrap();
    let mut parents = BTreeMap::new();
    for (id, node) in graph {
        for child in list(&node["children"]) {
            parents.insert(index(child), id.parse::<usize>().unwrap());
        }
    }
    let table = &file["dataframe"];
    let mut totals = Totals::new();
    let mut inclusive: BTreeMap<(String, usize), f64> = BTreeMap::new();
    for (row, node) in list(&table["node"]).iter().enumerate() {
        let lane = match table.get("rank") {
            Some(ranks) => format!("rank {}", ranks[row]),
            None => "mean".into(),
        };
        let time_s = table["time"][row].as_f64().unwrap();
        let outer = |node: &usize| parents.get(node).copied();
        let path: Vec<usize> = std::iter::successors(Some(index(node)), outer).collect();
        let names: Vec<String> =
            path.iter().map(|node| text(&graph[&node.to_string()]["data"]["name"])).collect();
        assert_eq!(text(&table["name"][row]), names[0]);
        for node in path {
            *inclusive.entry((lane.clone(), node)).or_default() += time_s;
        }
        add(&mut totals, &lane, &names, time_s);
    }
    for (row, node) in list(&table["node"]).iter().enumerate() {
        let lane = table.get("rank").map_or("mean".into(), |ranks| format!("rank {}", ranks[row]));
        let said = table["time (inc)"][row].as_f64().unwrap();
        let summed = inclusive[&(lane, index(node))];
        assert!((said - summed).abs() < 1e-6, "{said} is not {summed}");
    }
    totals
}

pub fn pprof(bytes: &[u8]) -> Totals {
    let mut raw = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut raw).unwrap();
    let profile = Profile::decode(&raw[..]).unwrap();
    let string = |index: i64| profile.string_table[index as usize].clone();
    assert_eq!(string(0), "");
    assert_eq!(string(profile.sample_type[0].unit), "nanoseconds");
    let functions: BTreeMap<u64, String> =
        profile.function.iter().map(|it| (it.id, string(it.name))).collect();
    let modules: BTreeSet<u64> = profile.mapping.iter().map(|it| it.id).collect();
    let places: BTreeMap<u64, String> = profile
        .location
        .iter()
        .inspect(|it| assert!(modules.contains(&it.mapping_id)))
        .map(|it| (it.id, functions[&it.line[0].function_id].clone()))
        .collect();
    assert!(!functions.contains_key(&0) && !places.contains_key(&0) && !modules.contains(&0));
    let mut totals = Totals::new();
    for sample in &profile.sample {
        assert_eq!(string(sample.label[0].key), "rank");
        let path: Vec<String> = sample.location_id.iter().map(|id| places[id].clone()).collect();
        let lane = string(sample.label[0].text);
        add(&mut totals, &lane, &path, sample.value[0] as f64 * 1e-9);
    }
    totals
}

/// By process and thread: slices that nest, closed.
pub fn perfetto(bytes: &[u8]) -> BTreeMap<String, Totals> {
    let mut rest = bytes;
    let (mut names, mut tracks) = (BTreeMap::new(), BTreeMap::new());
    let mut processes = BTreeMap::new();
    let mut open: BTreeMap<u64, Vec<(u64, String)>> = BTreeMap::new();
    let mut all: BTreeMap<String, Totals> = BTreeMap::new();
    while let Some((key, tail)) = rest.split_first() {
        assert_eq!(*key, 10);
        rest = tail;
        let packet = TracePacket::decode_length_delimited(&mut rest).unwrap();
        for name in packet.interned_data.into_iter().flat_map(|data| data.event_names) {
            names.insert(name.iid, name.name);
        }
        if let Some(track) = packet.track_descriptor {
            if let Some(process) = track.process {
                processes.insert(process.pid, process.process_name);
            }
            let name = track.name.unwrap_or_default();
            let lane = track.thread.map_or((name, None), |it| (it.thread_name, Some(it.pid)));
            assert!(tracks.insert(track.uuid, lane).is_none());
        }
        let Some(event) = packet.track_event else { continue };
        let at_ns = packet.timestamp.unwrap();
        let stack = open.entry(event.track_uuid).or_default();
        if event.kind == EventType::SliceBegin as i32 {
            let name = event.name.or_else(|| names.get(&event.name_iid?).cloned()).unwrap();
            if let Some((outer_ns, _)) = stack.last() {
                assert!(*outer_ns <= at_ns);
            }
            stack.push((at_ns, name));
        } else if event.kind == EventType::SliceEnd as i32 {
            let (begin_ns, name) = stack.pop().expect("a slice is open");
            if stack.iter().all(|(_, outer)| *outer != name) {
                let (lane, pid) = &tracks[&event.track_uuid];
                let process = pid.map_or("none".into(), |pid| processes[&pid].clone());
                let totals = all.entry(process).or_default();
                *totals.entry((lane.clone(), name)).or_default() +=
                    at_ns.checked_sub(begin_ns).expect("time goes on") as f64 * 1e-9;
            }
        }
    }
    assert!(open.values().all(Vec::is_empty), "slices are open");
    for totals in all.values_mut() {
        totals.retain(|_, time| *time > 0.0);
    }
    all
}

/// Returns times by process and thread; checks every field that the documentation of the format
/// names for samples, stacks, frames, functions and markers.
pub fn firefox(bytes: &[u8]) -> BTreeMap<String, Totals> {
    let file = json(bytes);
    let meta = &file["meta"];
    assert!(index(&meta["preprocessedProfileVersion"]) >= 40 && index(&meta["version"]) >= 24);
    assert!(meta["interval"].as_f64().unwrap() > 0.0 && meta["startTime"].is_number());
    let categories = list(&meta["categories"]);
    assert!(categories.iter().all(|it| it["name"].is_string() && it["color"].is_string()));
    let schemas: Vec<String> =
        list(&meta["markerSchema"]).iter().map(|schema| text(&schema["name"])).collect();
    let mut all: BTreeMap<String, Totals> = BTreeMap::new();
    let mut tids = BTreeSet::new();
    for thread in list(&file["threads"]) {
        assert!(tids.insert(thread["tid"].to_string()), "a thread's number occurs twice");
        let strings = list(&thread["stringArray"]);
        let table = |name: &str, columns: &[&str]| {
            let table = thread[name].clone();
            let length = index(&table["length"]);
            for column in columns {
                assert_eq!(list(&table[*column]).len(), length, "{name}.{column}");
            }
            table
        };
        let samples = table("samples", &["stack", "timeDeltas", "weight"]);
        assert!(samples["threadCPUDelta"].is_null(), "CPU time is not known");
        let stacks = table("stackTable", &["frame", "prefix"]);
        let frames = table("frameTable", &["func", "category", "address", "line"]);
        let functions = table("funcTable", &["name", "fileName", "isJS", "resource"]);
        let markers =
            table("markers", &["name", "startTime", "endTime", "phase", "category", "data"]);
        for category in list(&frames["category"]).iter().chain(list(&markers["category"])) {
            assert!(index(category) < categories.len());
        }
        for (name, data) in list(&markers["name"]).iter().zip(list(&markers["data"])) {
            assert!(strings[index(name)].is_string() && schemas.contains(&text(&data["type"])));
        }
        assert_eq!(samples["weightType"], "tracing-ms");
        assert!(list(&samples["timeDeltas"]).iter().all(|delta| delta.as_f64().unwrap() >= 0.0));
        let totals = all.entry(text(&thread["processName"])).or_default();
        for (stack, weight) in list(&samples["stack"]).iter().zip(list(&samples["weight"])) {
            let mut path = Vec::new();
            let mut at = stack.as_u64().map(|stack| stack as usize);
            while let Some(stack) = at {
                let function = index(&frames["func"][index(&stacks["frame"][stack])]);
                path.push(text(&strings[index(&functions["name"][function])]));
                let prefix = stacks["prefix"][stack].as_u64().map(|prefix| prefix as usize);
                assert!(prefix.is_none_or(|prefix| prefix < stack), "a stack before its prefix");
                at = prefix;
            }
            add(totals, &text(&thread["name"]), &path, weight.as_f64().unwrap() * 1e-3);
        }
    }
    all
}
