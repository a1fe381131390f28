//! Merged tree: the contexts of all runs, with the times of each set-up and each run.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::alignment::align_calls;
use crate::comparison::ContextFrame;
use crate::context_keys::{ContextKey, ContextKeys, KeyId};
use crate::experiment::{CLASSES, Experiment, ExperimentFrame, ExperimentNode};
use crate::setups::Setup;

/// One of several lines with calls of the same MPI function in one context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Site {
    /// The line at this index in the run with most lines.
    OfReference(usize),
    /// A line that only this run has.
    OfRun(usize, u32),
}

/// Index of a context in the merged tree.
pub type ContextId = u32;

/// Union of the runs' contexts.
#[derive(Debug, Default)]
pub struct MergedTree {
    /// Callers by context; a caller has a lower index.
    pub parents: Vec<Option<ContextId>>,
    /// Keys by context.
    pub keys: Vec<KeyId>,
    /// Last run that has the context, and the frame there.
    frames: Vec<(usize, u32)>,
    /// Inclusive seconds by run and context, the sum over ranks.
    pub of_runs: Vec<Vec<f64>>,
    /// Inclusive seconds by set-up, context and class: means over runs of sums over ranks.
    pub inclusive: Vec<Vec<[f64; CLASSES]>>,
    /// Exclusive seconds by set-up and context: of a procedure with its own loops, of a loop alone.
    pub exclusive: Vec<Vec<f64>>,
    /// Calls by set-up and context: means over runs of sums over ranks.
    pub calls: Vec<Vec<f64>>,
    /// Contexts of the losses, by run: symptom and first cause.
    pub losses: Vec<Vec<(Option<ContextId>, Option<ContextId>)>>,
    children: Vec<Vec<ContextId>>,
    roots: Vec<ContextId>,
}

impl MergedTree {
    /// Merges the contexts of all runs.
    pub fn new(runs: &[Experiment], setups: &[Setup], keys: &ContextKeys) -> Self {
        let mut merged = Self::default();
        let mut known = HashMap::new();
        let mut places: Vec<Vec<Option<ContextId>>> = runs
            .iter()
            .enumerate()
            .map(|(index, run)| merged.take_in(index, run, keys, &mut known))
            .collect();
        merged.separate_calls(runs, keys, &mut places);
        for (run, places) in runs.iter().zip(&places) {
            let place = |node: u32| places.get(node as usize).copied().flatten();
            let of_loss = |loss: &crate::experiment::ExperimentLoss| {
                (place(loss.symptom), loss.cause.and_then(place))
            };
            merged.losses.push(run.losses.iter().map(of_loss).collect());
        }
        for setup in setups {
            merged.add_setup(runs, setup, &places, keys);
        }
        for (run, places) in runs.iter().zip(&places) {
            merged.add_run(run, places);
        }
        merged.link();
        merged
    }

    /// Adds the contexts of a run; returns the context of each of its nodes.
    fn take_in(
        &mut self,
        index: usize,
        run: &Experiment,
        keys: &ContextKeys,
        known: &mut HashMap<(Option<ContextId>, KeyId), ContextId>,
    ) -> Vec<Option<ContextId>> {
        let mut places: Vec<Option<ContextId>> = Vec::with_capacity(run.nodes_of_tree.len());
        for node in &run.nodes_of_tree {
            let parent = node.parent.and_then(|parent| places[parent as usize]);
            let key = keys.of_frames[index][node.frame as usize];
            // Time of an MPI library's own functions belongs to the MPI call.
            let within_mpi = parent.is_some_and(|parent| {
                matches!(keys.keys[self.keys[parent as usize] as usize], ContextKey::Mpi(_))
            });
            let place = match key {
                Some(key) if !within_mpi => {
                    let next = self.keys.len() as ContextId;
                    let place = *known.entry((parent, key)).or_insert(next);
                    if place == next {
                        self.parents.push(parent);
                        self.keys.push(key);
                        self.frames.push((index, node.frame));
                    }
                    self.frames[place as usize] = (index, node.frame);
                    Some(place)
                }
                _ => parent,
            };
            places.push(place);
        }
        places
    }

    /// Divides each context of MPI calls that a run makes at several lines into one context for
    /// each line. Where the lines are not known in all runs, the calls stay one context.
    fn separate_calls(
        &mut self,
        runs: &[Experiment],
        keys: &ContextKeys,
        places: &mut [Vec<Option<ContextId>>],
    ) {
        let mut lines: BTreeMap<ContextId, Vec<BTreeSet<Option<u32>>>> = BTreeMap::new();
        for (run, (experiment, places)) in runs.iter().zip(&*places).enumerate() {
            for (node, place) in experiment.nodes_of_tree.iter().zip(places) {
                let Some(place) = place.filter(|place| self.is_site(*place, node, places, keys))
                else {
                    continue;
                };
                let line = experiment.frames[node.frame as usize].line;
                let of_runs =
                    lines.entry(place).or_insert_with(|| vec![BTreeSet::new(); runs.len()]);
                of_runs[run].insert(line);
            }
        }
        lines.retain(|_, of_runs| {
            let are_known = of_runs.iter().flatten().all(Option::is_some);
            are_known && of_runs.iter().any(|lines| lines.len() > 1)
        });
        if lines.is_empty() {
            return;
        }
        let sites: BTreeMap<ContextId, Vec<BTreeMap<u32, ContextId>>> = lines
            .into_iter()
            .map(|(context, lines)| (context, self.sites(context, &lines)))
            .collect();
        for (run, (experiment, places)) in runs.iter().zip(places).enumerate() {
            let merged = places.clone();
            for (index, node) in experiment.nodes_of_tree.iter().enumerate() {
                let Some(context) = merged[index] else { continue };
                let Some(sites) = sites.get(&context) else { continue };
                places[index] = match self.is_site(context, node, &merged, keys) {
                    true => {
                        let line = experiment.frames[node.frame as usize].line;
                        let site = line.and_then(|line| sites[run].get(&line)).copied();
                        if let Some(site) = site {
                            self.frames[site as usize] = (run, node.frame);
                        }
                        site
                    }
                    false => node.parent.and_then(|parent| places[parent as usize]),
                };
            }
        }
    }

    /// Whether a node of a run is a call of MPI, merged into the context `place`, and not code in
    /// such a call.
    fn is_site(
        &self,
        place: ContextId,
        node: &ExperimentNode,
        places: &[Option<ContextId>],
        keys: &ContextKeys,
    ) -> bool {
        let is_in_call = node.parent.is_some_and(|parent| places[parent as usize] == Some(place));
        let key = &keys.keys[self.keys[place as usize] as usize];
        matches!(key, ContextKey::Mpi(_)) && !is_in_call
    }

    /// Creates the contexts of calls at several lines; the context itself becomes that of the first
    /// one. Returns the context of each line, by run.
    fn sites(
        &mut self,
        context: ContextId,
        lines: &[BTreeSet<Option<u32>>],
    ) -> Vec<BTreeMap<u32, ContextId>> {
        let mut of_sites: HashMap<Site, ContextId> = HashMap::new();
        let mut of_site = |site: Site| {
            if of_sites.is_empty() {
                of_sites.insert(site, context);
            }
            *of_sites.entry(site).or_insert_with(|| {
                self.parents.push(self.parents[context as usize]);
                self.keys.push(self.keys[context as usize]);
                self.frames.push(self.frames[context as usize]);
                self.keys.len() as ContextId - 1
            })
        };
        let lines: Vec<Vec<u32>> =
            lines.iter().map(|lines| lines.iter().flatten().copied().collect()).collect();
        let reference = lines.iter().max_by_key(|lines| lines.len());
        let reference: Vec<u64> = reference.into_iter().flatten().copied().map(u64::from).collect();
        let of_run = |(run, lines): (usize, &Vec<u32>)| {
            let positions: Vec<u64> = lines.iter().copied().map(u64::from).collect();
            let matched = align_calls(&reference, &positions);
            let site = |(line, matched): (&u32, Option<usize>)| {
                let site = matched.map_or(Site::OfRun(run, *line), Site::OfReference);
                (*line, of_site(site))
            };
            lines.iter().zip(matched).map(site).collect()
        };
        lines.iter().enumerate().map(of_run).collect()
    }

    fn add_setup(
        &mut self,
        runs: &[Experiment],
        setup: &Setup,
        places: &[Vec<Option<ContextId>>],
        keys: &ContextKeys,
    ) {
        let count = setup.runs.len() as f64;
        let mut own = vec![[0.0; CLASSES]; self.keys.len()];
        let mut calls = vec![0.0; self.keys.len()];
        for run in &setup.runs {
            for (node, place) in runs[*run].nodes_of_tree.iter().zip(&places[*run]) {
                let Some(place) = place else { continue };
                for (sum_s, own_s) in own[*place as usize].iter_mut().zip(node.own_s) {
                    *sum_s += own_s / count;
                }
                // Calls of frames that are left out belong to other functions.
                let key = keys.of_frames[*run][node.frame as usize];
                if key == Some(self.keys[*place as usize]) {
                    calls[*place as usize] += node.calls as f64 / count;
                }
            }
        }
        self.exclusive.push(self.exclusive_of(&own, keys));
        for context in (0..own.len()).rev() {
            if let Some(parent) = self.parents[context] {
                let below = own[context];
                for (sum_s, below_s) in own[parent as usize].iter_mut().zip(below) {
                    *sum_s += below_s;
                }
            }
        }
        self.inclusive.push(own);
        self.calls.push(calls);
    }

    /// Returns exclusive times; those of loops also count to their procedure.
    fn exclusive_of(&self, own: &[[f64; CLASSES]], keys: &ContextKeys) -> Vec<f64> {
        let is_loop =
            |context: usize| matches!(keys.keys[self.keys[context] as usize], ContextKey::Loop(..));
        let alone: Vec<f64> = own.iter().map(|own| own.iter().sum()).collect();
        let mut with_loops = alone.clone();
        for context in (0..own.len()).rev() {
            if let (true, Some(parent)) = (is_loop(context), self.parents[context]) {
                with_loops[parent as usize] += with_loops[context];
            }
        }
        let exclusive =
            |context| if is_loop(context) { alone[context] } else { with_loops[context] };
        (0..own.len()).map(exclusive).collect()
    }

    fn add_run(&mut self, run: &Experiment, places: &[Option<ContextId>]) {
        let mut totals = vec![0.0; self.keys.len()];
        for (node, place) in run.nodes_of_tree.iter().zip(places) {
            if let Some(place) = place {
                totals[*place as usize] += node.own_s.iter().sum::<f64>();
            }
        }
        for context in (0..totals.len()).rev() {
            if let Some(parent) = self.parents[context] {
                totals[parent as usize] += totals[context];
            }
        }
        self.of_runs.push(totals);
    }

    fn link(&mut self) {
        self.children = vec![Vec::new(); self.keys.len()];
        for (context, parent) in self.parents.iter().enumerate() {
            match parent {
                Some(parent) => self.children[*parent as usize].push(context as ContextId),
                None => self.roots.push(context as ContextId),
            }
        }
    }

    /// Returns the contexts without a caller.
    pub fn roots(&self) -> &[ContextId] {
        &self.roots
    }

    /// Returns the contexts directly below one.
    pub fn children(&self, context: ContextId) -> &[ContextId] {
        &self.children[context as usize]
    }

    /// Returns the inclusive seconds of a context in a set-up, the sum over ranks.
    pub fn total_s(&self, setup: usize, context: ContextId) -> f64 {
        self.inclusive[setup][context as usize].iter().sum()
    }

    /// Returns the contexts from the outermost to this one.
    pub fn path(&self, context: ContextId) -> Vec<ContextId> {
        let mut path = Vec::new();
        let mut at = Some(context);
        while let Some(context) = at {
            path.push(context);
            at = self.parents[context as usize];
        }
        path.reverse();
        path
    }

    /// Returns the frame of a context in the last run that has it.
    pub fn frame<'r>(&self, runs: &'r [Experiment], context: ContextId) -> &'r ExperimentFrame {
        let (run, frame) = self.frames[context as usize];
        &runs[run].frames[frame as usize]
    }

    /// Returns the frames of the path to a context.
    pub fn frames_of(&self, runs: &[Experiment], context: ContextId) -> Vec<ContextFrame> {
        let frames = self.path(context).into_iter().map(|it| {
            let frame = self.frame(runs, it);
            ContextFrame {
                kind: frame.kind,
                function: frame.function.clone(),
                file: frame.file.clone(),
                line: frame.line,
                module: frame.module.clone(),
            }
        });
        frames.collect()
    }
}
