//! Maps of totals that add up over ranks, such as totals by context.

use std::collections::BTreeMap;

use plimsoll_collector::profile::NodeId;

/// Adds values to those with the same keys: `add` adds a value of `theirs` to one of `ours`.
pub fn merge<K: Ord, V: Default>(
    ours: &mut BTreeMap<K, V>,
    theirs: impl IntoIterator<Item = (K, V)>,
    add: impl Fn(&mut V, V),
) {
    for (key, value) in theirs {
        add(ours.entry(key).or_default(), value);
    }
}

/// Returns values by context; `places` are these contexts in another tree.
pub fn moved<V>(
    values: impl IntoIterator<Item = (NodeId, V)>,
    places: &[NodeId],
) -> impl Iterator<Item = (NodeId, V)> {
    values.into_iter().map(|(node, value)| (places[node as usize], value))
}
