//! Identity of frames across runs: names without the parts that a rebuild, another path on disk or
//! another version of a library changes.

use std::collections::{HashMap, HashSet};

use plimsoll_summary::FrameKind;

use crate::alignment::align;
use crate::experiment::{Experiment, ExperimentFrame, base_name};

/// Index of a key in [`ContextKeys::keys`].
pub type KeyId = u32;

/// Frame, identical in every run that has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ContextKey {
    /// A procedure, called or inlined; an empty module is the program itself.
    Procedure {
        /// Name without suffixes of clones.
        function: String,
        /// Module without version.
        module: String,
    },
    /// A call of MPI.
    Mpi(String),
    /// The n-th loop of a procedure, by the order of the reference run.
    Loop(KeyId, u32),
}

/// The keys of all frames of several runs.
#[derive(Debug, Default)]
pub struct ContextKeys {
    /// Distinct keys.
    pub keys: Vec<ContextKey>,
    ids: HashMap<ContextKey, KeyId>,
    /// Keys by run and frame; `None` for frames that are left out, so that their time belongs to
    /// the context around them.
    pub of_frames: Vec<Vec<Option<KeyId>>>,
}

impl ContextKeys {
    /// Creates the keys of all frames.
    pub fn new(experiments: &[Experiment]) -> Self {
        let mut keys = Self::default();
        for experiment in experiments {
            let of_run =
                experiment.frames.iter().map(|frame| keys.procedure(frame, experiment)).collect();
            keys.of_frames.push(of_run);
        }
        let blind = keys.known_to_blind(experiments);
        keys.leave_out_inlined(experiments, &blind);
        keys.add_loops(experiments, &blind);
        keys
    }

    fn id(&mut self, key: ContextKey) -> KeyId {
        let next = self.keys.len() as KeyId;
        *self.ids.entry(key).or_insert_with_key(|key| {
            self.keys.push(key.clone());
            next
        })
    }

    fn procedure(&mut self, frame: &ExperimentFrame, run: &Experiment) -> Option<KeyId> {
        let key = match frame.kind {
            FrameKind::Mpi => ContextKey::Mpi(frame.function.clone()),
            FrameKind::Function | FrameKind::Inlined => procedure_key(frame, run),
            FrameKind::Loop | FrameKind::Line => return None,
        };
        Some(self.id(key))
    }

    /// Returns for each run without debug information the procedures that it shows.
    fn known_to_blind(&self, experiments: &[Experiment]) -> Vec<HashSet<KeyId>> {
        experiments
            .iter()
            .zip(&self.of_frames)
            .filter(|(experiment, _)| !has_debug_information(experiment))
            .map(|(_, keys)| keys.iter().flatten().copied().collect())
            .collect()
    }

    /// Leaves out inlined procedures in all runs if a run without debug information cannot show
    /// them.
    fn leave_out_inlined(&mut self, experiments: &[Experiment], blind: &[HashSet<KeyId>]) {
        for (experiment, keys) in experiments.iter().zip(&mut self.of_frames) {
            for (frame, key) in experiment.frames.iter().zip(keys) {
                let unknown = |known: &HashSet<KeyId>| key.is_none_or(|key| !known.contains(&key));
                if frame.kind == FrameKind::Inlined && blind.iter().any(unknown) {
                    *key = None;
                }
            }
        }
    }

    /// Adds the loops, numbered by their order in the procedure that contains them; the run that
    /// shows the most loops is the reference. Loops of inlined procedures that a run cannot show
    /// are left out in all runs.
    fn add_loops(&mut self, experiments: &[Experiment], blind: &[HashSet<KeyId>]) {
        let mut by_holder: HashMap<KeyId, Vec<LoopList>> = HashMap::new();
        for (run, experiment) in experiments.iter().enumerate() {
            for (index, frame) in experiment.frames.iter().enumerate() {
                if frame.kind != FrameKind::Loop {
                    continue;
                }
                let holder = self.id(procedure_key(frame, experiment));
                let lists = by_holder
                    .entry(holder)
                    .or_insert_with(|| vec![LoopList::default(); experiments.len()]);
                lists[run].insert(frame, index);
            }
        }
        let mut holders: Vec<_> = by_holder.into_iter().collect();
        holders.sort_unstable_by_key(|(holder, _)| *holder);
        for (holder, lists) in holders {
            if blind.iter().all(|known| known.contains(&holder)) {
                self.match_loops(holder, &lists);
            }
        }
    }

    fn match_loops(&mut self, holder: KeyId, lists: &[LoopList]) {
        let sorted: Vec<LoopList> = lists.iter().map(LoopList::sorted).collect();
        let Some(reference) = sorted.iter().max_by_key(|list| list.loops.len()) else { return };
        let positions = reference.positions();
        let shown = || sorted.iter().enumerate().filter(|(_, list)| !list.loops.is_empty());
        let can_match = |list: &LoopList| {
            list.by_line == reference.by_line || list.loops.len() == reference.loops.len()
        };
        if !shown().all(|(_, list)| can_match(list)) {
            // Lines and offsets cannot be matched: the time of the loops counts to their procedure
            // in all runs.
            return;
        }
        for (run, list) in shown() {
            let comparable = list.by_line == reference.by_line;
            let matched: Vec<Option<usize>> = if comparable {
                align(&positions, &list.positions())
            } else {
                (0..list.loops.len()).map(Some).collect()
            };
            for (number, (one, place)) in list.loops.iter().zip(matched).enumerate() {
                // A loop that only this run has gets a number beyond those of the reference.
                let alone = reference.loops.len() + run * 1_000_000 + number;
                let ordinal = place.unwrap_or(alone) as u32;
                let key = self.id(ContextKey::Loop(holder, ordinal));
                for frame in &one.frames {
                    self.of_frames[run][*frame] = Some(key);
                }
            }
        }
    }
}

/// Loops of a procedure in one run.
#[derive(Clone, Debug, Default)]
struct LoopList {
    by_line: bool,
    loops: Vec<OneLoop>,
}

#[derive(Clone, Debug)]
struct OneLoop {
    position: u64,
    frames: Vec<usize>,
}

impl LoopList {
    fn insert(&mut self, frame: &ExperimentFrame, index: usize) {
        let by_line = frame.line.is_some();
        let position = frame.line.map(u64::from).or(frame.offset).unwrap_or(0);
        self.by_line |= by_line;
        match self.loops.iter_mut().find(|it| it.position == position) {
            Some(known) => known.frames.push(index),
            None => self.loops.push(OneLoop { position, frames: vec![index] }),
        }
    }

    fn sorted(&self) -> Self {
        let mut sorted = self.clone();
        sorted.loops.sort_by_key(|it| it.position);
        sorted
    }

    fn positions(&self) -> Vec<u64> {
        self.loops.iter().map(|it| it.position).collect()
    }
}

fn procedure_key(frame: &ExperimentFrame, run: &Experiment) -> ContextKey {
    let is_program = base_name(&frame.module) == run.program();
    let module = if is_program { String::new() } else { library_name(&frame.module) };
    // A function without a symbol is named by its module and address.
    let function = match frame.function.strip_prefix(frame.module.as_str()) {
        Some(address) if address.starts_with("+0x") => address,
        _ => without_clone_suffixes(&frame.function),
    };
    ContextKey::Procedure { function: function.to_owned(), module }
}

/// Returns a library's name without folders and version: `libm.so.6`, `libm-2.31.so` -> `libm.so`.
fn library_name(module: &str) -> String {
    let name = base_name(module);
    let Some((stem, _)) = name.split_once(".so") else { return name.to_owned() };
    let version = |part: &str| part.chars().all(|char| char.is_ascii_digit() || char == '.');
    let stem = match stem.rsplit_once('-') {
        Some((before, part)) if !part.is_empty() && version(part) => before,
        _ => stem,
    };
    format!("{stem}.so")
}

/// Suffixes of copies that GCC and LLVM make of functions.
const CLONE_SUFFIXES: [&str; 7] =
    [".constprop", ".isra", ".part", ".cold", ".lto_priv", ".llvm", ".specialized"];

fn without_clone_suffixes(function: &str) -> &str {
    let ends = CLONE_SUFFIXES.iter().filter_map(|suffix| function.find(suffix));
    let end = ends.filter(|at| *at > 0).min().unwrap_or(function.len());
    &function[..end]
}

/// Returns whether the program's own code has lines: a run without them shows no inlined
/// procedures.
fn has_debug_information(run: &Experiment) -> bool {
    let own = |frame: &&ExperimentFrame| base_name(&frame.module) == run.program();
    let mut lines = run.frames.iter().filter(own).filter(|frame| frame.kind != FrameKind::Function);
    lines.any(|frame| frame.line.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_clones_do_not_tell_frames_apart() {
        assert_eq!(library_name("libm.so.6"), "libm.so");
        assert_eq!(library_name("/usr/lib/libm-2.31.so"), "libm.so");
        assert_eq!(library_name("libstdc++.so.6.0.30"), "libstdc++.so");
        assert_eq!(library_name("my-tool"), "my-tool");
        assert_eq!(without_clone_suffixes("solve.constprop.0.isra.0"), "solve");
        assert_eq!(without_clone_suffixes("main._omp_fn.0"), "main._omp_fn.0");
    }
}
