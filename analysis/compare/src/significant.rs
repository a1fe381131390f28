//! Reported contexts of a comparison: parts of the tree that do not overlap and add up.

use std::collections::{HashMap, HashSet};

use plimsoll_summary::FrameKind;

use crate::context_keys::{ContextKey, ContextKeys, KeyId};
use crate::diff_thresholds::SAME_CONTEXT_FRACTION;
use crate::experiment::{CLASSES, Experiment};
use crate::merged::{ContextId, MergedTree};

/// Context without some of those below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The context.
    pub top: ContextId,
    /// Contexts below it that are parts of their own.
    pub without: Vec<ContextId>,
}

impl Part {
    /// Returns the seconds of the part by class in a set-up, the sum over ranks.
    pub fn by_class_s(&self, tree: &MergedTree, setup: usize) -> [f64; CLASSES] {
        let mut sums_s = tree.inclusive[setup][self.top as usize];
        for below in &self.without {
            let below_s = tree.inclusive[setup][*below as usize];
            for (sum_s, below_s) in sums_s.iter_mut().zip(below_s) {
                *sum_s -= below_s;
            }
        }
        sums_s
    }

    /// Returns the seconds of the part in a set-up, the sum over ranks.
    pub fn total_s(&self, tree: &MergedTree, setup: usize) -> f64 {
        self.by_class_s(tree, setup).iter().sum()
    }

    /// Returns the seconds of the part in a run, the sum over ranks.
    pub fn of_run_s(&self, tree: &MergedTree, run: usize) -> f64 {
        let of = |context: ContextId| tree.of_runs[run][context as usize];
        of(self.top) - self.without.iter().map(|below| of(*below)).sum::<f64>()
    }
}

/// Returns parts with a value of at least `least` in one of `views`, as deep in the tree as
/// possible. The value of a context includes those of the contexts below it.
///
/// A loop directly in a loop of its procedure is no part of its own: a few samples that hit one
/// loop instead of the other would look like a gain and a loss.
pub fn parts(
    tree: &MergedTree,
    keys: &ContextKeys,
    views: usize,
    value: impl Fn(usize, ContextId) -> f64,
    least: f64,
) -> Vec<Part> {
    let count = tree.keys.len();
    let inner: Vec<bool> =
        (0..count as ContextId).map(|context| is_inner_loop(context, tree, keys)).collect();
    let mut reaches = vec![false; count];
    for context in (0..count).rev() {
        reaches[context] |= !inner[context]
            && (0..views).any(|view| value(view, context as ContextId).abs() >= least);
        if let (true, Some(parent)) = (reaches[context], tree.parents[context]) {
            reaches[parent as usize] = true;
        }
    }
    let mut found = Vec::new();
    for top in 0..count as ContextId {
        if inner[top as usize] || !reaches[top as usize] {
            continue;
        }
        let mut without = Vec::new();
        let mut below: Vec<ContextId> = tree.children(top).iter().rev().copied().collect();
        while let Some(context) = below.pop() {
            if inner[context as usize] {
                below.extend(tree.children(context).iter().rev());
            } else if reaches[context as usize] {
                without.push(context);
            }
        }
        let rest = |view: usize| {
            value(view, top) - without.iter().map(|below| value(view, *below)).sum::<f64>()
        };
        if without.is_empty() || (0..views).any(|view| rest(view).abs() >= least) {
            found.push(Part { top, without });
        }
    }
    found
}

/// Returns whether a context is a loop directly within a loop of the same procedure.
fn is_inner_loop(context: ContextId, tree: &MergedTree, keys: &ContextKeys) -> bool {
    let holder = |context: ContextId| match keys.keys[tree.keys[context as usize] as usize] {
        ContextKey::Loop(holder, _) => Some(holder),
        ContextKey::Procedure { .. } | ContextKey::Mpi(_) => None,
    };
    let around = tree.parents[context as usize].and_then(holder);
    around.is_some() && around == holder(context)
}

/// Raises parts to the outermost context of the same code: a function that only sleeps is better
/// known than the function that it sleeps in. Parts with the same result are merged.
pub fn raised(
    parts: Vec<Part>,
    tree: &MergedTree,
    keys: &ContextKeys,
    runs: &[Experiment],
) -> Vec<Part> {
    let chains: Vec<Vec<ContextId>> = parts.iter().map(|part| chain(part, tree)).collect();
    let mut uses: HashMap<KeyId, usize> = HashMap::new();
    for chain in &chains {
        let distinct: HashSet<KeyId> = chain.iter().map(|it| tree.keys[*it as usize]).collect();
        for key in distinct {
            *uses.entry(key).or_default() += 1;
        }
    }
    let mut seen = HashSet::new();
    parts
        .into_iter()
        .zip(chains)
        .map(|(part, chain)| {
            let names = |context: &&ContextId| {
                let key = tree.keys[**context as usize];
                let named = matches!(keys.keys[key as usize], ContextKey::Procedure { .. });
                named && uses[&key] == 1 && is_users(tree.frame(runs, **context).module.as_str())
            };
            let top = if !part.without.is_empty() || is_mpi(&part, tree, keys) {
                part.top
            } else {
                // The chain begins at the innermost context.
                chain.iter().find(names).copied().unwrap_or(part.top)
            };
            Part { top, ..part }
        })
        .filter(|part| seen.insert((part.top, part.without.clone())))
        .collect()
}

fn is_mpi(part: &Part, tree: &MergedTree, keys: &ContextKeys) -> bool {
    matches!(keys.keys[tree.keys[part.top as usize] as usize], ContextKey::Mpi(_))
}

/// Returns a part and the contexts around it with hardly more time in any set-up, innermost first.
fn chain(part: &Part, tree: &MergedTree) -> Vec<ContextId> {
    let setups = 0..tree.inclusive.len();
    let most_s = setups.clone().map(|setup| tree.total_s(setup, part.top)).fold(0.0, f64::max);
    let same = |context: ContextId| {
        setups.clone().all(|setup| {
            let more_s = tree.total_s(setup, context) - tree.total_s(setup, part.top);
            more_s <= SAME_CONTEXT_FRACTION * most_s
        })
    };
    let mut chain = vec![part.top];
    let mut at = part.top;
    while let Some(parent) = tree.parents[at as usize] {
        if !same(parent) {
            break;
        }
        chain.push(parent);
        at = parent;
    }
    chain
}

/// Libraries with uninformative function names: those of the C library and compilers.
const SYSTEM_LIBRARIES: [&str; 9] = [
    "libc.so",
    "libc-",
    "libm.so",
    "libm-",
    "libpthread",
    "ld-linux",
    "libgcc_s",
    "libstdc++",
    "libmpi",
];

/// Returns whether a module is no part of the C library, the compiler or MPI.
pub fn is_users(module: &str) -> bool {
    let name = crate::experiment::base_name(module);
    !SYSTEM_LIBRARIES.iter().any(|library| name.starts_with(library))
}

/// Returns the name of a context in a comparison: that of the innermost part that holds it, else
/// its own.
pub fn known_name(
    context: ContextId,
    parts: &[Part],
    tree: &MergedTree,
    runs: &[Experiment],
) -> String {
    let path = tree.path(context);
    let is_whole =
        |it: &&ContextId| parts.iter().any(|part| part.top == **it && part.without.is_empty());
    let holder = path.iter().rev().find(is_whole);
    name(holder.copied().unwrap_or(context), tree, runs)
}

/// Returns the name of a context in a sentence: an MPI call with its caller, and with its line if
/// there are calls at several lines; a loop with its line.
pub fn name(context: ContextId, tree: &MergedTree, runs: &[Experiment]) -> String {
    let path = tree.path(context);
    let frame = tree.frame(runs, context);
    let place = |line: Option<u32>| match (&frame.file, line) {
        (Some(file), Some(line)) => format!(" at {file}:{line}"),
        _ => String::new(),
    };
    match frame.kind {
        FrameKind::Mpi => {
            let mut outer = path.iter().rev().skip(1).map(|it| tree.frame(runs, *it));
            let caller =
                outer.find(|it| matches!(it.kind, FrameKind::Function | FrameKind::Inlined));
            let siblings = match tree.parents[context as usize] {
                Some(parent) => tree.children(parent),
                None => tree.roots(),
            };
            let is_same = |it: &&ContextId| tree.keys[**it as usize] == tree.keys[context as usize];
            let is_alone = siblings.iter().filter(is_same).count() <= 1;
            let line = if is_alone { String::new() } else { place(frame.line) };
            match caller {
                Some(caller) => format!("{}{line} in {}", frame.function, caller.function),
                None => format!("{}{line}", frame.function),
            }
        }
        FrameKind::Loop => format!("the loop{} in {}", place(frame.line), frame.function),
        FrameKind::Function | FrameKind::Inlined | FrameKind::Line => frame.function.clone(),
    }
}
