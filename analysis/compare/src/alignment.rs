//! Alignment of the loops of a procedure in two builds, by line or offset, and of the calls of one
//! function by line. Lines may have been added or removed between the builds.

use std::collections::BTreeMap;

/// Returns for each position of `other` the index in `reference` of the same loop; `None` without
/// one. Both are sorted and without repetitions.
///
/// Most pairs of loops agree on one shift; loops at equal positions after this shift match. Between
/// two matches, loops are matched in order if both builds have equally many there. The remaining
/// loops exist in one build only.
pub fn align(reference: &[u64], other: &[u64]) -> Vec<Option<usize>> {
    let mut matched = vec![None; other.len()];
    let mut anchors = Vec::new();
    if let Some(shift) = best_shift(reference, other) {
        for (at, position) in other.iter().enumerate() {
            let wanted = i128::from(*position) - shift;
            if let Some(found) = reference.iter().position(|it| i128::from(*it) == wanted) {
                matched[at] = Some(found);
                anchors.push((found, at));
            }
        }
    }
    anchors.push((reference.len(), other.len()));
    let (mut from_reference, mut from_other) = (0, 0);
    for (to_reference, to_other) in anchors {
        if to_reference - from_reference == to_other - from_other {
            for step in 0..to_other - from_other {
                matched[from_other + step] = Some(from_reference + step);
            }
        }
        (from_reference, from_other) = (to_reference + 1, to_other + 1);
    }
    matched
}

/// Returns for each line of `other` with a call the index in `reference` of the same call, as
/// [`align`] does for loops; in the order of lines if no position matches.
pub fn align_calls(reference: &[u64], other: &[u64]) -> Vec<Option<usize>> {
    let matched = align(reference, other);
    if matched.iter().any(Option::is_some) {
        return matched;
    }
    (0..other.len()).map(|at| (at < reference.len()).then_some(at)).collect()
}

/// Returns the difference of positions that most pairs have, the smallest of several; `None` if
/// only one pair has it (by chance) and the builds have equal numbers of loops.
fn best_shift(reference: &[u64], other: &[u64]) -> Option<i128> {
    /// Maximum number of loops for the search: the number of pairs is its square. Above it, loops
    /// are matched without a shift.
    const MAX_LOOPS: usize = 200;
    if reference.len() > MAX_LOOPS || other.len() > MAX_LOOPS {
        return Some(0);
    }
    let mut votes: BTreeMap<i128, usize> = BTreeMap::new();
    for one in reference {
        for two in other {
            *votes.entry(i128::from(*two) - i128::from(*one)).or_default() += 1;
        }
    }
    let (shift, most) =
        votes.into_iter().max_by_key(|(shift, votes)| (*votes, std::cmp::Reverse(shift.abs())))?;
    match most {
        1 if shift != 0 && reference.len() == other.len() => None,
        1 => Some(0),
        _ => Some(shift),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(found: &[usize]) -> Vec<Option<usize>> {
        found.iter().copied().map(Some).collect()
    }

    #[test]
    fn moved_code_keeps_its_loops() {
        assert_eq!(align(&[10, 20, 30], &[10, 20, 30]), all(&[0, 1, 2]), "the same");
        assert_eq!(align(&[10, 25, 30], &[17, 32, 37]), all(&[0, 1, 2]), "all shifted");
        assert_eq!(align(&[10, 50], &[10, 60]), all(&[0, 1]), "lines added between");
        assert_eq!(align(&[10], &[99]), all(&[0]), "a single loop anywhere");
        assert_eq!(align(&[10, 50, 55, 70], &[10, 60, 65, 80]), all(&[0, 1, 2, 3]));
    }

    #[test]
    fn calls_match_by_their_lines_or_by_their_order() {
        assert_eq!(align_calls(&[10, 20, 30], &[14, 34]), all(&[0, 2]), "one removed");
        assert_eq!(align_calls(&[12, 20], &[10]), all(&[0]), "no line matches");
        assert_eq!(align_calls(&[10], &[12, 20]), [Some(0), None]);
    }

    #[test]
    fn a_loop_of_one_build_only_matches_none() {
        assert_eq!(align(&[10, 20, 30], &[10, 30]), all(&[0, 2]), "one not sampled");
        assert_eq!(align(&[10, 30], &[10, 20, 30]), [Some(0), None, Some(1)]);
        assert_eq!(align(&[10, 20, 35], &[14, 39]), all(&[0, 2]), "shifted, one not sampled");
        assert_eq!(align(&[], &[1, 2]), [None, None]);
        assert_eq!(align(&[1, 2], &[]), []);
    }
}
