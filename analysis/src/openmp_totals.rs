//! Parallel regions of OpenMP over ranks: accumulated, combined and converted to the summary.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use plimsoll_collector::profile::{
    LengthDistribution, MAX_SHARES, NodeId, RegionProfile, ShareProfile, TaskProfile,
};
use serde::{Deserialize, Serialize};

use crate::lock_totals::LockTotals;
use crate::map_merge::{merge, moved};
use crate::metrics::NS_PER_S;
use crate::rank::Rank;
use crate::ranks::RankSet;
use crate::summary::{Frame, OpenMp, OpenMpEfficiency, Region, Task, ThreadShare};
use crate::team_totals::is_fine;

/// Maximum number of regions of a summary.
const MAX_REGIONS: usize = 256;

/// Parallel regions of some ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenMpTotals {
    runtimes: BTreeSet<String>,
    regions: BTreeMap<NodeId, RegionSums>,
    tasks: BTreeMap<TaskFunction, TaskSums>,
    /// Waits for locks.
    pub locks: LockTotals,
    unmeasured: u64,
}

/// Function of tasks, equal on all ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct TaskFunction {
    name: Option<String>,
    file: Option<String>,
    line: Option<u32>,
}

/// Executions of tasks on some ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct TaskSums {
    ranks: RankSet,
    count: u64,
    work_ns: u64,
    longest_ns: u64,
    lengths: LengthDistribution,
}

impl TaskSums {
    fn add(&mut self, other: &Self) {
        self.ranks = self.ranks.union(&other.ranks);
        self.count = self.count.saturating_add(other.count);
        self.work_ns = self.work_ns.saturating_add(other.work_ns);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.lengths.combine(&other.lengths);
    }
}

/// A region of some ranks. The sums are those of the profiles; `sums.node` is not used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionSums {
    /// Ranks that execute the region.
    pub ranks: RankSet,
    /// Sums over these ranks.
    pub sums: RegionProfile,
    /// Largest imbalance of a rank.
    pub max_imbalance_ns: u64,
    /// Ranks with the smallest teams.
    pub smallest: SmallestTeams,
}

/// Ranks that execute a region with the smallest teams of all ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmallestTeams {
    /// Number of threads in the largest team of each of these ranks.
    pub threads: u32,
    /// Ranks.
    pub ranks: RankSet,
    /// Work of all threads, summed over these ranks, in nanoseconds.
    pub work_ns: u64,
}

impl SmallestTeams {
    fn add(&mut self, other: &Self) {
        match self.threads.cmp(&other.threads) {
            _ if other.ranks.is_empty() => {}
            _ if self.ranks.is_empty() => *self = other.clone(),
            Ordering::Less => {}
            Ordering::Greater => *self = other.clone(),
            Ordering::Equal => {
                self.ranks = self.ranks.union(&other.ranks);
                self.work_ns = self.work_ns.saturating_add(other.work_ns);
            }
        }
    }
}

impl OpenMpTotals {
    /// Adds one rank. `places` are the contexts of its communicating thread and of its other
    /// threads in the totals, by node of the rank's tree.
    pub fn add_rank(&mut self, rank: &Rank<'_>, places: [&[Option<NodeId>]; 2]) {
        let openmp = &rank.input.profile.openmp;
        self.runtimes.extend(openmp.runtime.clone());
        self.unmeasured = self.unmeasured.saturating_add(openmp.unmeasured);
        self.locks.add_rank(&openmp.lock_waits, places);
        for region in &openmp.regions {
            let places = places[usize::from(!region.is_main)];
            let Some(place) = places.get(region.node as usize).copied().flatten() else { continue };
            let one = RegionSums {
                ranks: RankSet::from_iter([rank.input.rank]),
                sums: region.clone(),
                max_imbalance_ns: region.imbalance_ns(),
                smallest: SmallestTeams {
                    threads: region.threads,
                    ranks: RankSet::from_iter([rank.input.rank]),
                    work_ns: region.work_ns,
                },
            };
            self.regions.entry(place).or_default().add(&one);
        }
        for task in openmp.tasks.clone() {
            let TaskProfile { name, file, line, count, work_ns, longest_ns, lengths } = task;
            let ranks = RankSet::from_iter([rank.input.rank]);
            let sums = self.tasks.entry(TaskFunction { name, file, line }).or_default();
            sums.add(&TaskSums { ranks, count, work_ns, longest_ns, lengths });
        }
    }

    /// Adds other ranks; `places` are their contexts here.
    pub fn combine(&mut self, other: Self, places: &[NodeId]) {
        self.runtimes.extend(other.runtimes);
        self.unmeasured = self.unmeasured.saturating_add(other.unmeasured);
        self.locks.combine(other.locks, places);
        let regions = moved(other.regions, places);
        merge(&mut self.regions, regions, |ours, theirs| ours.add(&theirs));
        merge(&mut self.tasks, other.tasks, |ours, theirs| ours.add(&theirs));
    }

    /// Returns the regions by the contexts of the calls that make them.
    pub fn regions(&self) -> impl Iterator<Item = (NodeId, &RegionSums)> {
        self.regions.iter().map(|(node, region)| (*node, region))
    }

    /// Returns the median duration of the instances of a region in seconds; `None` if unknown.
    pub fn median_of_region(&self, node: NodeId) -> Option<f64> {
        median_s(&self.region(node)?.sums.lengths)
    }

    /// Returns the median duration of short tasks in seconds; `None` if unknown.
    pub fn median_of_short_tasks(&self) -> Option<f64> {
        let mut lengths = LengthDistribution::default();
        let is_short = |sums: &&TaskSums| is_fine(sums.count, sums.work_ns);
        self.tasks.values().filter(is_short).for_each(|sums| lengths.combine(&sums.lengths));
        median_s(&lengths)
    }

    /// Returns the region that the call in a context makes.
    pub fn region(&self, node: NodeId) -> Option<&RegionSums> {
        self.regions.get(&node)
    }

    /// Returns the regions of the summary; `places` are the contexts in the summary's tree, `path`
    /// returns the path of one.
    pub fn conclude(
        &self,
        places: &[Option<u32>],
        path: impl Fn(NodeId) -> Vec<Frame>,
        efficiency: Option<OpenMpEfficiency>,
    ) -> OpenMp {
        let mut sites: Vec<(u32, Vec<Frame>, RegionSums)> = Vec::new();
        for (node, region) in &self.regions {
            let Some(place) = places.get(*node as usize).copied().flatten() else { continue };
            let path = path(*node);
            // A compiler copies the call of a region: a reader knows it by its path and line.
            let same = sites.iter_mut().find(|(_, other, sums)| {
                region.sums.line.is_some() && sums.is_at_line_of(region) && *other == path
            });
            match same {
                Some((_, _, sums)) => sums.add_site(region),
                None => sites.push((place, path, region.clone())),
            }
        }
        let mut regions: Vec<Region> =
            sites.into_iter().map(|(place, path, sums)| sums.shown(place, path)).collect();
        regions.sort_by(|one, other| other.wait_s.total_cmp(&one.wait_s));
        regions.truncate(MAX_REGIONS);
        let runtimes: Vec<&str> = self.runtimes.iter().map(String::as_str).collect();
        let mut tasks: Vec<Task> = self.tasks.iter().map(task).collect();
        tasks.sort_by_key(|task| std::cmp::Reverse(task.count));
        tasks.truncate(MAX_REGIONS);
        OpenMp {
            runtime: (!runtimes.is_empty()).then(|| runtimes.join(",")),
            regions,
            tasks,
            unmeasured: self.unmeasured,
            efficiency,
        }
    }
}

/// Returns the median in seconds; `None` without durations.
fn median_s(lengths: &LengthDistribution) -> Option<f64> {
    lengths.median_ns().map(|ns| ns as f64 / NS_PER_S)
}

fn task((function, sums): (&TaskFunction, &TaskSums)) -> Task {
    Task {
        function: function.name.clone(),
        file: function.file.clone(),
        line: function.line,
        ranks: sums.ranks.to_string(),
        count: sums.count,
        work_s: sums.work_ns as f64 / NS_PER_S,
        longest_s: sums.longest_ns as f64 / NS_PER_S,
        median_s: median_s(&sums.lengths),
    }
}

impl RegionSums {
    /// Returns whether another region begins at the same source line.
    pub fn is_at_line_of(&self, other: &Self) -> bool {
        (&self.sums.file, self.sums.line) == (&other.sums.file, other.sums.line)
    }

    /// Adds the region of another call site. The largest imbalance of a rank over both sites is
    /// then an upper bound.
    fn add_site(&mut self, other: &Self) {
        let max_imbalance_ns = self.max_imbalance_ns.saturating_add(other.max_imbalance_ns);
        self.add(other);
        self.max_imbalance_ns = max_imbalance_ns;
    }

    /// Adds the region of other ranks, or of another call path.
    pub fn add(&mut self, other: &Self) {
        self.ranks = self.ranks.union(&other.ranks);
        self.max_imbalance_ns = self.max_imbalance_ns.max(other.max_imbalance_ns);
        self.smallest.add(&other.smallest);
        let (ours, theirs) = (&mut self.sums, &other.sums);
        if ours.instances == 0 {
            ours.level = theirs.level;
        }
        ours.name = ours.name.take().or_else(|| theirs.name.clone());
        ours.file = ours.file.take().or_else(|| theirs.file.clone());
        ours.line = ours.line.or(theirs.line);
        ours.level = ours.level.min(theirs.level);
        ours.threads = ours.threads.max(theirs.threads);
        ours.lengths.combine(&theirs.lengths);
        for (sum, value) in [
            (&mut ours.instances, theirs.instances),
            (&mut ours.elapsed_ns, theirs.elapsed_ns),
            (&mut ours.thread_ns, theirs.thread_ns),
            (&mut ours.work_ns, theirs.work_ns),
            (&mut ours.mean_work_ns, theirs.mean_work_ns),
            (&mut ours.max_work_ns, theirs.max_work_ns),
            (&mut ours.max_thread_ns, theirs.max_thread_ns),
            (&mut ours.barrier_ns, theirs.barrier_ns),
            (&mut ours.lock_ns, theirs.lock_ns),
            (&mut ours.mpi_ns, theirs.mpi_ns),
        ] {
            *sum = sum.saturating_add(value);
        }
        for share in theirs.shares.iter().filter(|share| (share.number as usize) < MAX_SHARES) {
            let at = match ours.shares.binary_search_by_key(&share.number, |it| it.number) {
                Ok(at) => at,
                Err(at) => {
                    let none = ShareProfile { number: share.number, ..ShareProfile::default() };
                    ours.shares.insert(at, none);
                    at
                }
            };
            let sum = &mut ours.shares[at];
            for (sum, value) in [
                (&mut sum.count, share.count),
                (&mut sum.work_ns, share.work_ns),
                (&mut sum.barrier_ns, share.barrier_ns),
                (&mut sum.lock_ns, share.lock_ns),
                (&mut sum.mpi_ns, share.mpi_ns),
            ] {
                *sum = sum.saturating_add(value);
            }
        }
    }

    fn shown(&self, node: u32, path: Vec<Frame>) -> Region {
        let seconds = |ns: u64| ns as f64 / NS_PER_S;
        let sums = &self.sums;
        Region {
            path,
            node,
            function: sums.name.clone(),
            file: sums.file.clone(),
            line: sums.line,
            level: sums.level,
            ranks: self.ranks.to_string(),
            threads: sums.threads,
            instances: sums.instances,
            elapsed_s: seconds(sums.elapsed_ns),
            mean_s: seconds(sums.elapsed_ns) / sums.instances.max(1) as f64,
            median_s: median_s(&sums.lengths),
            thread_s: seconds(sums.thread_ns),
            work_s: seconds(sums.work_ns),
            wait_s: seconds(sums.thread_ns.saturating_sub(sums.work_ns)),
            imbalance_s: seconds(sums.imbalance_ns()),
            max_imbalance_s: seconds(self.max_imbalance_ns),
            scheduling_s: seconds(sums.scheduling_loss_ns()),
            load_balance_s: seconds(sums.load_balance_loss_ns()),
            barrier_s: seconds(sums.barrier_ns),
            lock_s: seconds(sums.lock_ns),
            mpi_s: seconds(sums.mpi_ns),
            shares: sums
                .shares
                .iter()
                .map(|share| ThreadShare {
                    number: share.number,
                    work_s: seconds(share.work_ns),
                    barrier_s: seconds(share.barrier_ns),
                    lock_s: seconds(share.lock_ns),
                    mpi_s: seconds(share.mpi_ns),
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::FrameKind;

    fn region(number: u32, work_ns: u64, max_work_ns: u64) -> RegionSums {
        let share = ShareProfile { number, count: 1, work_ns, ..ShareProfile::default() };
        RegionSums {
            ranks: RankSet::from_iter([number]),
            sums: RegionProfile {
                level: 1,
                threads: 2 + number,
                instances: 3,
                elapsed_ns: 10_000_000_000,
                thread_ns: 20_000_000_000,
                work_ns,
                max_work_ns,
                mean_work_ns: work_ns / 2,
                shares: vec![share],
                line: (number == 1).then_some(7),
                ..RegionProfile::default()
            },
            max_imbalance_ns: max_work_ns - work_ns / 2,
            smallest: SmallestTeams {
                threads: 2 + number,
                ranks: RankSet::from_iter([number]),
                work_ns,
            },
        }
    }

    #[test]
    fn the_order_of_ranks_does_not_matter_and_the_most_idle_region_comes_first() {
        let of = |regions: [(NodeId, RegionSums); 2]| {
            let mut totals = OpenMpTotals::default();
            for (node, region) in regions {
                let regions = BTreeMap::from([(0, region)]);
                totals.combine(OpenMpTotals { regions, ..OpenMpTotals::default() }, &[node]);
            }
            totals
        };
        let (one, other) =
            (region(0, 12_000_000_000, 9_000_000_000), region(1, 18_000_000_000, 9_500_000_000));
        let both = of([(4, one.clone()), (4, other.clone())]);
        assert_eq!(both, of([(4, other.clone()), (4, one.clone())]));
        let shown = both.conclude(&[None, None, None, None, Some(2)], |_| Vec::new(), None);
        let [it] = &shown.regions[..] else { panic!("{shown:?}") };
        assert_eq!((it.node, it.ranks.as_str(), it.threads, it.line), (2, "0-1", 3, Some(7)));
        assert_eq!((it.level, it.instances, it.work_s), (1, 6, 30.0));
        assert_eq!((it.imbalance_s, it.max_imbalance_s), (3.5, 3.0));
        assert_eq!(it.shares.iter().map(|share| share.work_s).collect::<Vec<_>>(), [12.0, 18.0]);

        let apart = of([(0, other), (1, one)]).conclude(&[Some(0), Some(1)], |_| Vec::new(), None);
        assert_eq!(apart.regions.iter().map(|it| it.node).collect::<Vec<_>>(), [1, 0]);
        let none = OpenMpTotals::default().conclude(&[], |_| Vec::new(), None);
        assert_eq!(none, OpenMp::default());
    }

    #[test]
    fn the_call_sites_of_one_source_line_are_one_row() {
        let at_line = |line: Option<u32>| {
            let mut region = region(1, 18_000_000_000, 9_500_000_000);
            region.sums.line = line;
            region
        };
        let lines = [Some(7), Some(7), Some(9), None, None];
        let regions = (0..).zip(lines.map(at_line)).collect();
        let totals = OpenMpTotals { regions, ..OpenMpTotals::default() };
        let rows = |path: fn(NodeId) -> Vec<Frame>| {
            let places: Vec<Option<u32>> = (0..5).map(Some).collect();
            let shown = totals.conclude(&places, path, None).regions.into_iter();
            let mut rows: Vec<_> =
                shown.map(|it| (it.node, it.instances, it.max_imbalance_s)).collect();
            rows.sort_by_key(|row| row.0);
            rows
        };
        let one_path = rows(|_| Vec::new());
        assert_eq!(one_path, [(0, 6, 1.0), (2, 3, 0.5), (3, 3, 0.5), (4, 3, 0.5)]);
        let path = |node: NodeId| vec![Frame { line: Some(node), ..frame() }];
        assert_eq!(rows(path).len(), 5);
    }

    fn frame() -> Frame {
        Frame {
            kind: FrameKind::Function,
            function: "solve".into(),
            file: None,
            line: None,
            offset: None,
            module: "app".into(),
        }
    }
}
