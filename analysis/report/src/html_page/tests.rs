use std::fs;
use std::io::Read;

use base64::Engine;
use flate2::read::ZlibDecoder;

use super::*;
use plimsoll_summary::npz::{self, Array};
use plimsoll_summary::{Bicluster, Frame, FrameKind, Metric, PeriodUs, Projection, Run, TreeNode};

/// The bytes of a block.
fn content(page: &str, name: &str) -> Option<Vec<u8>> {
    let begin = format!("id=\"data-{name}\">");
    let (_, rest) = page.split_once(&begin)?;
    let bytes = STANDARD.decode(rest.split_once('<')?.0).unwrap();
    let mut content = Vec::new();
    ZlibDecoder::new(&*bytes).read_to_end(&mut content).unwrap();
    Some(content)
}

fn page(summary: &Summary, beside: Option<&Path>) -> String {
    let mut page = Vec::new();
    write_page(summary, beside, &mut page).unwrap();
    String::from_utf8(page).unwrap()
}

fn json(page: &str, name: &str) -> serde_json::Value {
    serde_json::from_slice(&content(page, name).unwrap()).unwrap()
}

/// A summary with one context of each of these names, one below the other.
pub(super) fn summary(names: &[&str]) -> Summary {
    let mut summary = Summary {
        run: Run {
            executable: names[0].into(),
            elapsed_s: 2.0,
            ranks: 4,
            threads: 4,
            period_us: PeriodUs { asked: 4000.0, effective: None },
            complete: true,
            ended: "exit".into(),
            ..Run::default()
        },
        projection: Projection { elapsed_s: 2.0 },
        ..Summary::default()
    };
    for (index, name) in (0u32..).zip(names) {
        summary.tree.frames.push(Frame::new(FrameKind::Function, *name, "program"));
        summary.tree.nodes.push(node(index));
    }
    summary
}

fn node(index: u32) -> TreeNode {
    let time = Metric { mean_s: 1.5, max_s: 2.0, ranks: 3, ..Metric::default() };
    TreeNode {
        parent: index.checked_sub(1),
        frame: index,
        label: plimsoll_summary::label::Label::WaitPartner,
        calls: 5_000_000_000 + u64::from(index),
        calls_exact: true,
        inclusive: time,
        idle_s: Some(0.25),
        counters: [("cycles".to_owned(), 7.0)].into(),
        ..TreeNode::default()
    }
}

#[test]
fn the_summary_is_in_the_page_whatever_its_names_hold() {
    let hostile = "</script><script>alert(1)</script><!--data-->{script}";
    let summary = summary(&[hostile, "b"]);
    let page = page(&summary, None);
    assert!(!page.contains("alert(1)"));
    let expected = serde_json::to_value(&summary).unwrap();
    for key in expected.as_object().unwrap().keys().filter(|key| *key != "tree") {
        assert_eq!(json(&page, "summary")[key], expected[key], "{key}");
    }
    assert_eq!(json(&page, "frames"), expected["tree"]["frames"]);
    assert_eq!(content(&page, "ranks"), None);
    assert_eq!(json(&page, "page")["ranks"], "The run wrote no such file.");
}

/// Joins the planes of a column.
fn column(block: &[u8], name: &str) -> Vec<u64> {
    let end = block.iter().position(|byte| *byte == b'\n').unwrap();
    let header: serde_json::Value = serde_json::from_slice(&block[..end]).unwrap();
    let nodes = header["nodes"].as_u64().unwrap() as usize;
    let mut rest = &block[end + 1..];
    for column in header["columns"].as_array().unwrap() {
        let width = match column[1].as_str().unwrap() {
            "u8" => 1,
            "u64" => 8,
            _ => 4,
        };
        let (planes, behind) = rest.split_at(width * nodes);
        if column[0] == name {
            let value = |node| {
                (0..width).map(|byte| u64::from(planes[byte * nodes + node]) << (8 * byte)).sum()
            };
            return (0..nodes).map(value).collect();
        }
        rest = behind;
    }
    panic!("no column {name}");
}

#[test]
fn columns_hold_the_numbers_of_the_tree() {
    let page = page(&summary(&["a", "b", "c"]), None);
    let block = content(&page, "tree").unwrap();
    let seconds = |name| -> Vec<f32> {
        column(&block, name).into_iter().map(|bits| f32::from_bits(bits as u32)).collect()
    };
    assert_eq!(column(&block, "parent"), [u64::from(u32::MAX), 0, 1]);
    assert_eq!(column(&block, "calls"), [5_000_000_000, 5_000_000_001, 5_000_000_002]);
    assert_eq!(column(&block, "inclusive.ranks"), [3; 3]);
    assert_eq!(column(&block, "balanced"), [255; 3]);
    assert_eq!(seconds("inclusive.mean_s"), [1.5; 3]);
    assert_eq!(seconds("idle_s"), [0.25; 3]);
    assert_eq!(seconds("counters.cycles"), [7.0; 3]);
    assert!(seconds("imb_s").iter().all(|value| value.is_nan()));
}

/// A file with the inclusive and exclusive times of single ranks in some contexts: the number of
/// the rank, and a tenth of it.
fn table(ranks: u32, nodes: &[u32]) -> Vec<u8> {
    let shape = [nodes.len(), ranks as usize];
    let times = |factor: f32| -> Vec<f32> {
        (0..ranks).flat_map(|rank| nodes.iter().map(move |_| rank as f32 * factor)).collect()
    };
    let arrays = [
        Array::integers("ranks", 0..ranks),
        Array::integers("nodes", nodes.iter().copied()),
        Array::floats("inclusive_s", &shape, &times(1.0)),
        Array::floats("exclusive_s", &shape, &times(0.1)),
    ];
    let mut file = Vec::new();
    npz::write(&mut file, &arrays, None).unwrap();
    file
}

#[test]
fn times_of_single_ranks_stand_by_context() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("x.npz"), table(4, &[0, 2])).unwrap();
    let mut summary = summary(&["a", "b", "c"]);
    summary.per_rank.file = Some("x.npz".into());
    let block = content(&page(&summary, Some(directory.path())), "ranks").unwrap();
    let end = block.iter().position(|byte| *byte == b'\n').unwrap();
    let header: serde_json::Value = serde_json::from_slice(&block[..end]).unwrap();
    assert_eq!(header["nodes"], serde_json::json!([0, 2]));
    let planes = &block[end + 1..];
    let count = planes.len() / 4;
    let times: Vec<f32> = (0..count)
        .map(|at| f32::from_le_bytes([0, 1, 2, 3].map(|byte| planes[byte * count + at])))
        .collect();
    // Inclusive times of the four ranks in the first context, then exclusive ones.
    assert_eq!(times[..8], [0.0, 1.0, 2.0, 3.0, 0.0, 0.1, 0.2, 0.3]);
}

#[test]
fn sentences_of_the_text_report_are_in_the_page() {
    let mut summary = summary(&["a", "b"]);
    let bicluster = |ranks: &str, sign| Bicluster {
        event: None,
        nodes: vec![0, 1],
        ranks: ranks.into(),
        sign,
        variance_share: 0.62,
    };
    summary.biclusters = vec![bicluster("0-1", 1), bicluster("3", -1), bicluster("2", 1)];
    let sentences = json(&page(&summary, None), "sentences");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = words(&crate::text(&summary));
    let biclusters = sentences["biclusters"].as_array().unwrap();
    let biclusters: Vec<String> = biclusters.iter().map(|it| words(it.as_str().unwrap())).collect();
    assert_eq!(biclusters.len(), 3, "the page has more of them than the text report");
    assert!(biclusters[..2].iter().all(|it| text.contains(it)), "{biclusters:?}, {text}");
    assert_eq!(sentences["population"], serde_json::Value::Null);
    // The page says the cost of a short run as the text report does.
    let cost_of = |summary: &Summary| {
        let cost = words(json(&page(summary, None), "sentences")["cost"].as_str().unwrap());
        assert!(words(&crate::text(summary)).contains(&format!("overhead {cost};")), "{cost}");
        cost
    };
    summary.collection.finalize_s = Some(0.1);
    summary.run.elapsed_s = 2.0;
    summary.run.period_us.asked = 100_000.0;
    assert!(cost_of(&summary).starts_with("at least 0.00 % of CPU time (0 s sampling,"));
    summary.thresholds.insert("min_run_periods".into(), 25.0);
    assert!(cost_of(&summary).starts_with("not to be compared with so short a run (0 s sampling,"));
}

#[test]
fn contexts_of_biclusters_stay_in_a_page_without_room_for_all() {
    let names: Vec<String> = (0..20).map(|index| index.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut summary = summary(&names);
    // Room for 10 contexts, all of equal spread: without the bicluster the first ones stay.
    let nodes: Vec<u32> = (0..20).collect();
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("x.npz"), table(50_000, &nodes)).unwrap();
    summary.per_rank.file = Some("x.npz".into());
    summary.biclusters = vec![Bicluster {
        event: None,
        nodes: vec![17, 19],
        ranks: "0-99".into(),
        sign: 1,
        variance_share: 0.5,
    }];
    let block = content(&page(&summary, Some(directory.path())), "ranks").unwrap();
    let end = block.iter().position(|byte| *byte == b'\n').unwrap();
    let header: serde_json::Value = serde_json::from_slice(&block[..end]).unwrap();
    assert_eq!(header["nodes"], serde_json::json!([0, 1, 2, 3, 4, 5, 6, 7, 17, 19]));
}

#[test]
fn missing_and_damaged_files_are_stated_in_the_page() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("in");
    fs::create_dir(&place).unwrap();
    fs::write(directory.path().join("secret"), "\"plimsoll-timeline/1\"").unwrap();
    fs::write(place.join("text"), "no timeline").unwrap();
    fs::write(place.join("short"), &table(4, &[0, 1])[..180]).unwrap();
    let mut summary = summary(&["a", "b"]);
    for (file, reason) in [
        ("../secret", "The summary names a file of another directory."),
        ("/etc/passwd", "The summary names a file of another directory."),
        ("absent", "The file was not there when the page was made."),
        ("text", "The file holds no timeline."),
    ] {
        summary.timeline.file = Some(file.into());
        let page = page(&summary, Some(&place));
        assert_eq!(json(&page, "page")["timeline"], reason, "{file}");
        assert_eq!(content(&page, "timeline"), None);
    }
    for (file, reason) in [("short", "it is no archive"), ("text", "it is no archive")] {
        summary.per_rank.file = Some(file.into());
        let said = json(&page(&summary, Some(&place)), "page")["ranks"].clone();
        let said = said.as_str().unwrap();
        assert!(said.starts_with(&format!("The file is damaged: {reason}")), "{said}");
    }
}

#[test]
fn a_timeline_is_included_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let timeline = format!("{{\"schema\":\"plimsoll-timeline/1\",\"x\":\"{}\"}}", "y".repeat(99));
    fs::write(directory.path().join("x.timeline"), &timeline).unwrap();
    let mut summary = summary(&["a"]);
    summary.timeline.file = Some("x.timeline".into());
    let page = page(&summary, Some(directory.path()));
    assert_eq!(content(&page, "timeline").unwrap(), timeline.as_bytes());
}
