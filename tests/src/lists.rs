//! Lists of ranks and of iterations, as summaries write them.

/// Returns the numbers in a list such as `0-4:2,9`, in the list's order.
///
/// # Panics
/// If the text is not a list.
pub fn numbers(list: &str) -> Vec<u64> {
    let number = |text: &str| match text.parse::<u64>() {
        Ok(number) => number,
        Err(error) => panic!("\"{text}\" in the list \"{list}\": {error}"),
    };
    let part = |part: &str| {
        let (range, step) = part.split_once(':').unwrap_or((part, "1"));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        (number(first)..=number(last)).step_by(number(step) as usize)
    };
    let parts = list.split(',').filter(|_| !list.is_empty());
    parts.flat_map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_hold_what_their_ranges_do() {
        assert!(numbers("").is_empty());
        assert_eq!(numbers("3"), [3]);
        assert_eq!(numbers("0-4:2,9,11-12"), [0, 2, 4, 9, 11, 12]);
    }
}
