//! Calls that make parallel regions and threads: the calls that grafted stacks hang below.

use std::collections::HashSet;

use plimsoll_wire::teams::PathKey;

use crate::raw_tree::{IdMap, RawId, Tree};
use crate::region_values::RegionValues;

/// Maximum number of call paths that are looked up in the tree. Stacks inside further paths are
/// whole paths of their own.
const MAX_LOOKED_UP: usize = 1 << 12;

/// Returns the contexts of the calls that made the regions or threads in which grafted stacks lie,
/// by the roots of these stacks. A call that the tree does not hold is missing, because its record
/// was lost.
pub(crate) fn makers(tree: &Tree, regions: &RegionValues) -> IdMap<RawId, RawId> {
    let is_unknown = |path: &PathKey| regions.caller(*path).is_none();
    let unknown = tree.grafts().map(|(path, _)| path).filter(is_unknown).take(MAX_LOOKED_UP);
    let found = tree.contexts_of(&unknown.collect::<HashSet<PathKey>>());
    let maker = |path| regions.caller(path).or_else(|| found.get(&path).copied());
    tree.grafts().filter_map(|(path, root)| Some((root, maker(path)?))).collect()
}
