//! Cuts a rank's samples at the releases of all ranks: into the phases, instances and releases that
//! a collector makes of measured synchronisations.

use std::collections::{BTreeMap, HashMap};

use plimsoll_collector::profile::{
    InstanceRow, InstanceRows, Node, NodeId, NodeValue, PhaseProfile, ProcessProfile, Series,
    instance_level,
};

use super::ends::{End, Site};

/// Maximum number of instances that are kept.
const MAX_ROWS: usize = 1024;

/// Position at which a run is cut.
pub(super) struct Cut<'a> {
    /// End that was found at this position.
    pub(super) end: &'a End,
    /// Site of the synchronisation that ended.
    pub(super) site: &'a Site,
}

/// Cuts a run. The last instance keeps the ending of the run.
pub(super) fn cut(profile: &mut ProcessProfile, series: &Series, cuts: &[Cut<'_>]) {
    let ends_in = profile.phases.last().and_then(|phase| phase.ends_in);
    let mut known: BTreeMap<&Site, NodeId> = BTreeMap::new();
    let mut context = |site| *known.entry(site).or_insert_with(|| node(profile, site));
    let sites: Vec<NodeId> = cuts.iter().map(|cut| context(cut.site)).collect();
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
        let mut instance = Instance::default();
        for sight in first..next {
            let seen = &series.sights[sight];
            instance.add(seen, begin_of(sight + 1).saturating_sub(begin_of(sight)));
        }
        run.fold(index, (after, ends_in), begin_of(first), instance);
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

/// Phases found so far.
#[derive(Default)]
struct Run {
    phases: Vec<(PhaseProfile, BTreeMap<NodeId, NodeValue>)>,
    by_sites: HashMap<(Option<NodeId>, Option<NodeId>), usize>,
    rows: InstanceRows,
}

impl Run {
    fn fold(
        &mut self,
        index: u64,
        ends: (Option<NodeId>, Option<NodeId>),
        begin_ns: u64,
        instance: Instance,
    ) {
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
        let (phase, values) = &mut phases[number];
        phase.instances += 1;
        phase.last_index = index;
        phase.duration_ns += instance.duration_ns;
        for (node, value) in &instance.values {
            values.entry(*node).or_default().add(value);
        }
        if instance_level(index) < self.rows.level {
            return;
        }
        let net = |(node, value): (&NodeId, &NodeValue)| {
            let net_ns = value.net_ns();
            (net_ns > 0).then_some((*node, net_ns))
        };
        let values = instance.values.iter().filter_map(net).collect();
        let (phase, duration_ns) = (number as u32, instance.duration_ns);
        self.rows.rows.push(InstanceRow {
            subgroup: None,
            index,
            ends_in: ends.1,
            phase,
            duration_ns,
            values,
        });
        while self.rows.rows.len() > MAX_ROWS {
            self.rows.level += 1;
            let level = self.rows.level;
            self.rows.rows.retain(|row| instance_level(row.index) >= level);
        }
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
