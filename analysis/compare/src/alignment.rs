//! Matches the loops of a procedure in two builds of it, by line or offset, where lines were added
//! or removed between the builds.

use std::collections::BTreeMap;

/// For each of `other` the index in `reference` of the same loop. Both are sorted and without
/// repetitions.
///
/// Loops at equal positions, after the shift that most pairs agree on, are the same. What lies
/// between two of these is matched in order where both have the same number of loops there; what
/// is left is in one of the builds only.
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

/// The difference of positions that most pairs have, the least where several have; `None` where
/// a single pair agrees by chance, and equal numbers of loops tell more.
fn best_shift(reference: &[u64], other: &[u64]) -> Option<i128> {
    /// Functions with more loops are matched without a shift: the pairs would be too many.
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
    fn a_loop_of_one_build_only_matches_none() {
        assert_eq!(align(&[10, 20, 30], &[10, 30]), all(&[0, 2]), "one not sampled");
        assert_eq!(align(&[10, 30], &[10, 20, 30]), [Some(0), None, Some(1)]);
        assert_eq!(align(&[10, 20, 35], &[14, 39]), all(&[0, 2]), "shifted, one not sampled");
        assert_eq!(align(&[], &[1, 2]), [None, None]);
        assert_eq!(align(&[1, 2], &[]), []);
    }
}
