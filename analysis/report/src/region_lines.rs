//! Parallel regions of OpenMP in sentences and as a table.

use plimsoll_summary::phrase::{count, counted, percent, seconds};
use plimsoll_summary::{Frame, Region, Summary};

/// Maximum number of regions in the text summary, and their minimum part of the run time.
const MAX_REGIONS: usize = 3;
const MIN_RUN_FRACTION: f64 = 0.01;

/// Returns the regions with the most idle time, a sentence each.
pub fn regions(summary: &Summary) -> Vec<String> {
    let elapsed_s = summary.run.elapsed_s * f64::from(summary.run.ranks.max(1));
    let large =
        summary.openmp.regions.iter().filter(|it| it.elapsed_s > MIN_RUN_FRACTION * elapsed_s);
    large.take(MAX_REGIONS).map(|it| sentence(summary, it)).collect()
}

fn sentence(summary: &Summary, region: &Region) -> String {
    let idle = (region.thread_s - region.work_s).max(0.0) / region.thread_s.max(f64::MIN_POSITIVE);
    format!(
        "{}: {} x {} with {}, idle {} (uneven {}).",
        place(summary, region),
        count(region.instances),
        seconds(region.elapsed_s / region.instances.max(1) as f64),
        team(region),
        percent(idle),
        percent(region.load_balance_s / region.thread_s.max(f64::MIN_POSITIVE)),
    )
}

/// Returns the size of a region's teams: `4 threads`, or `1.8 threads on average, 3 at most` if
/// ranks or instances differ.
fn team(region: &Region) -> String {
    /// Minimum difference of the mean from the largest size: that of a rounded number.
    const MIN_DIFFERENCE: f64 = 0.05;
    let mean = region.thread_s / region.elapsed_s.max(f64::MIN_POSITIVE);
    match f64::from(region.threads) - mean >= MIN_DIFFERENCE {
        true => format!("{mean:.1} threads on average, {} at most", region.threads),
        false => counted(region.threads.into(), "thread"),
    }
}

/// Returns source location and caller of a region: `solve.c:12 in solve`.
fn place(summary: &Summary, region: &Region) -> String {
    let path = summary.tree.path(region.node);
    let caller = path.iter().rev().nth(1).map(|frame: &Frame| frame.function.as_str());
    let caller = caller.unwrap_or("the program");
    match (&region.file, region.line) {
        (Some(file), Some(line)) => {
            format!("{}:{line} in {caller}", file.rsplit('/').next().unwrap_or(file))
        }
        _ => format!("region in {caller}"),
    }
}

/// Returns all regions as lines of a table; empty without regions.
pub fn table(summary: &Summary) -> Vec<String> {
    let regions = &summary.openmp.regions;
    if regions.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![format!(
        "{:>10} {:>7} {:>10} {:>10} {:>6} {:>6} {:>6}  {}",
        "instances", "threads", "each", "in all", "idle", "uneven", "locks", "parallel region"
    )];
    for it in regions {
        let part = |s: f64| percent(s / it.thread_s.max(f64::MIN_POSITIVE));
        lines.push(format!(
            "{:>10} {:>7} {:>10} {:>10} {:>6} {:>6} {:>6}  {}",
            count(it.instances),
            it.threads,
            seconds(it.elapsed_s / it.instances.max(1) as f64),
            seconds(it.elapsed_s),
            part((it.thread_s - it.work_s).max(0.0)),
            part(it.load_balance_s),
            part(it.lock_s),
            place(summary, it),
        ));
    }
    lines
}
