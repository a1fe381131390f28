//! Cuts a rank's samples at the releases of all ranks and of subgroups: into the phases, instances,
//! subgroup intervals and releases that a collector makes of measured synchronisations.

use std::collections::{BTreeMap, HashMap};

use plimsoll_collector::profile::{
    InstanceRow, InstanceRows, Node, NodeId, NodeValue, PhaseProfile, ProcessProfile, Series,
    Subgroup, instance_level,
};
use plimsoll_wire::sync_id::is_followed;

use super::ends::{End, Site};
use crate::map_merge::merge;

/// Maximum number of instances that are kept.
const MAX_ROWS: usize = 1024;

/// Position at which a run is cut.
pub(super) struct Cut<'a> {
    /// End that was found at this position.
    pub(super) end: &'a End,
    /// Site of the synchronisation that ended.
    pub(super) site: &'a Site,
}

/// Position at which a subgroup of ranks synchronised.
pub(super) struct Division<'a> {
    /// The end, and its site.
    pub(super) cut: Cut<'a>,
    /// Ranks that synchronised.
    pub(super) subgroup: Subgroup,
    /// Number of earlier synchronisations of these ranks.
    pub(super) index: u64,
}

/// Cuts a run. The last instance keeps the ending of the run. Cuts and divisions are in the order
/// of time.
pub(super) fn cut(
    profile: &mut ProcessProfile,
    series: &Series,
    (cuts, divisions): (&[Cut<'_>], &[Division<'_>]),
) {
    let ends_in = profile.phases.last().and_then(|phase| phase.ends_in);
    let mut known: BTreeMap<&Site, NodeId> = BTreeMap::new();
    let mut context = |site| *known.entry(site).or_insert_with(|| node(profile, site));
    let sites: Vec<NodeId> = cuts.iter().map(|cut| context(cut.site)).collect();
    let divisions: Vec<(&Division<'_>, NodeId)> =
        divisions.iter().map(|division| (division, context(division.cut.site))).collect();
    let mut divisions = divisions.into_iter().peekable();
    let mut run = Run::default();
    let mut first = 0;
    let mut after = None;
    let elapsed_ns = profile.elapsed_ns;
    let begin_of = |sight: usize| {
        let at = series.sights.get(sight).map_or(elapsed_ns, |sight| sight.at_ns);
        // Time before the first sample belongs to the first instance.
        if sight == 0 { 0 } else { at.min(elapsed_ns) }
    };
    let ends = cuts.iter().zip(&sites).map(|(cut, site)| (cut.end.sight, Some(*site)));
    let ends = ends.chain([(series.sights.len(), ends_in)]);
    for (index, (next, ends_in)) in (0..).zip(ends) {
        let mut intervals: Vec<Interval> = Vec::new();
        let mut instance = Instance::default();
        for sight in first..next {
            while let Some((division, node)) =
                divisions.next_if(|(division, _)| division.cut.end.sight <= sight)
            {
                let ended = std::mem::take(&mut instance);
                if division.cut.end.sight > first && is_followed(division.index) {
                    let (subgroup, index) = (Some(division.subgroup), division.index);
                    intervals.push(Interval { subgroup, index, ends_in: Some(node), ended });
                } else {
                    instance = ended;
                }
            }
            let seen = &series.sights[sight];
            instance.add(seen, begin_of(sight + 1).saturating_sub(begin_of(sight)));
        }
        intervals.push(Interval { subgroup: None, index, ends_in, ended: instance });
        run.fold(after, begin_of(first), intervals);
        (first, after) = (next, ends_in);
    }
    run.complete(&profile.phases);
    let count = cuts.len() as u64;
    if let Some(sync_returns) = &mut profile.sync_returns {
        // The only measured synchronisation is the one at the end of the run.
        let measured = std::mem::take(&mut sync_returns.ends);
        let found = (0..).zip(cuts).map(|(index, cut)| (index, cut.end.at.max(0) as u64));
        let last = measured.last().filter(|_| ends_in.is_some());
        sync_returns.ends = found.chain(last.map(|(_, end)| (count, *end))).collect();
    }
    profile.syncs = count + u64::from(ends_in.is_some());
    profile.phases = run.phases();
    profile.rows = run.rows;
    profile.subgroup_intervals = run.subgroup_intervals;
}

/// Returns the context of a site; adds the context if this rank was never seen in it.
fn node(profile: &mut ProcessProfile, site: &Site) -> NodeId {
    let tree = &mut profile.tree;
    let mut at: Option<NodeId> = None;
    for (frame, place) in &site.path {
        let known = tree.frames.iter().position(|known| known == frame);
        let frame = known.unwrap_or_else(|| {
            tree.frames.push(frame.clone());
            tree.frames.len() - 1
        }) as u32;
        let wanted = Node { parent: at, frame, site: *place };
        let known = tree.nodes.iter().position(|node| *node == wanted);
        at = Some(known.unwrap_or_else(|| {
            tree.nodes.push(wanted);
            tree.nodes.len() - 1
        }) as NodeId);
    }
    at.unwrap_or_default()
}

/// Values of one instance.
#[derive(Default)]
struct Instance {
    duration_ns: u64,
    values: BTreeMap<NodeId, NodeValue>,
}

impl Instance {
    fn absorb(&mut self, other: Self) {
        self.duration_ns += other.duration_ns;
        merge(&mut self.values, other.values, |ours, theirs| ours.add(&theirs));
    }

    fn add(&mut self, sight: &plimsoll_collector::profile::Sight, time_ns: u64) {
        self.duration_ns += time_ns;
        let value = NodeValue {
            exclusive_ns: time_ns,
            run_delay_ns: sight.run_delay_ns.min(time_ns),
            samples: sight.samples,
            ..NodeValue::default()
        };
        self.values.entry(sight.node).or_default().add(&value);
        for node in &sight.begun {
            self.values.entry(*node).or_default().calls += 1;
        }
    }
}

/// Adds a row if its level is kept; raises the level while there are too many.
fn push(rows: &mut InstanceRows, row: InstanceRow) {
    if instance_level(row.index) < rows.level {
        return;
    }
    rows.rows.push(row);
    while rows.rows.len() > MAX_ROWS {
        rows.level += 1;
        let level = rows.level;
        rows.rows.retain(|row| instance_level(row.index) >= level);
    }
}

/// Part of an instance up to a synchronisation of a subgroup, or of all ranks (`None`).
struct Interval {
    subgroup: Option<Subgroup>,
    index: u64,
    ends_in: Option<NodeId>,
    ended: Instance,
}

impl Interval {
    fn row(&self, phase: u32) -> InstanceRow {
        let net = |(node, value): (&NodeId, &NodeValue)| {
            let net_ns = value.net_ns();
            (net_ns > 0).then_some((*node, net_ns))
        };
        InstanceRow {
            subgroup: self.subgroup,
            index: self.index,
            ends_in: self.ends_in,
            phase,
            duration_ns: self.ended.duration_ns,
            values: self.ended.values.iter().filter_map(net).collect(),
        }
    }
}

/// Phases found so far.
#[derive(Default)]
struct Run {
    phases: Vec<(PhaseProfile, BTreeMap<NodeId, NodeValue>)>,
    by_sites: HashMap<(Option<NodeId>, Option<NodeId>), usize>,
    rows: InstanceRows,
    subgroup_intervals: InstanceRows,
}

impl Run {
    /// Adds an instance that begins at `begin_ns`, after a synchronisation at `after`. The last of
    /// its intervals ends it.
    fn fold(&mut self, after: Option<NodeId>, begin_ns: u64, intervals: Vec<Interval>) {
        let Some(Interval { index, ends_in, .. }) = intervals.last() else { return };
        let (index, ends) = (*index, (after, *ends_in));
        let phases = &mut self.phases;
        let number = *self.by_sites.entry(ends).or_insert_with(|| {
            let phase = PhaseProfile {
                begins_after: ends.0,
                ends_in: ends.1,
                first_index: index,
                last_index: index,
                instances: 0,
                first_begin_ns: begin_ns,
                duration_ns: 0,
                values: Vec::new(),
            };
            phases.push((phase, BTreeMap::new()));
            phases.len() - 1
        });
        if intervals.len() > 1 {
            intervals
                .iter()
                .for_each(|it| push(&mut self.subgroup_intervals, it.row(number as u32)));
        }
        let mut whole =
            Interval { subgroup: None, index, ends_in: ends.1, ended: Instance::default() };
        intervals.into_iter().for_each(|it| whole.ended.absorb(it.ended));
        let (phase, values) = &mut phases[number];
        phase.instances += 1;
        phase.last_index = index;
        phase.duration_ns += whole.ended.duration_ns;
        for (node, value) in &whole.ended.values {
            values.entry(*node).or_default().add(value);
        }
        push(&mut self.rows, whole.row(number as u32));
    }

    /// Adds the values of the whole run that no sample shows, which are those of measured calls at
    /// its end.
    fn complete(&mut self, whole: &[PhaseProfile]) {
        let mut missing: BTreeMap<NodeId, NodeValue> = BTreeMap::new();
        for (node, value) in whole.iter().flat_map(|phase| &phase.values) {
            missing.entry(*node).or_default().add(value);
        }
        for (node, value) in self.phases.iter().flat_map(|(_, values)| values) {
            let missing = missing.entry(*node).or_default();
            missing.calls = missing.calls.saturating_sub(value.calls);
            missing.bytes = missing.bytes.saturating_sub(value.bytes);
            missing.samples = missing.samples.saturating_sub(value.samples);
        }
        let Some((_, last)) = self.phases.last_mut() else { return };
        for (node, NodeValue { calls, bytes, samples, .. }) in missing {
            if calls > 0 || bytes > 0 || samples > 0 {
                let value = NodeValue { calls, bytes, samples, ..NodeValue::default() };
                last.entry(node).or_default().add(&value);
            }
        }
    }

    fn phases(&mut self) -> Vec<PhaseProfile> {
        let phases = std::mem::take(&mut self.phases).into_iter();
        let whole = |(mut phase, values): (PhaseProfile, BTreeMap<NodeId, NodeValue>)| {
            phase.values = values.into_iter().collect();
            phase
        };
        phases.map(whole).collect()
    }
}
