//! The truth that a subject writes about itself, and comparisons with it.

use serde_json::Value;

/// The JSON object that a subject wrote.
#[derive(Clone, Debug)]
pub struct Truth(Value);

impl Truth {
    /// Wraps the JSON object from the subject's file.
    pub const fn new(object: Value) -> Self {
        Self(object)
    }

    /// Returns a number: seconds if the key ends with `_s`, otherwise a count.
    ///
    /// # Panics
    /// If the subject did not write it.
    pub fn number(&self, key: &str) -> f64 {
        self.0[key].as_f64().unwrap_or_else(|| panic!("no number {key} in {}", self.0))
    }

    /// Returns a number; `None` if the subject does not claim one.
    pub fn optional_number(&self, key: &str) -> Option<f64> {
        self.0[key].as_f64()
    }

    /// Returns a text; `None` if the subject claims nothing.
    ///
    /// # Panics
    /// If the subject did not write it.
    pub fn text(&self, key: &str) -> Option<&str> {
        match &self.0[key] {
            Value::String(text) => Some(text),
            Value::Null if self.0.get(key).is_some() => None,
            _ => panic!("no text {key} in {}", self.0),
        }
    }

    /// Returns one number per rank or thread.
    ///
    /// # Panics
    /// If the subject did not write it.
    pub fn numbers(&self, key: &str) -> Vec<f64> {
        let list = self.0[key].as_array().unwrap_or_else(|| panic!("no list {key} in {}", self.0));
        list.iter().filter_map(Value::as_f64).collect()
    }
}

/// Returns whether `found` differs from the truth by at most the fraction `tolerance` of the truth.
pub fn is_within(found: f64, truth: f64, tolerance: f64) -> bool {
    (found - truth).abs() <= tolerance * truth.abs()
}

/// Asserts [`is_within`].
///
/// # Panics
/// If the numbers are farther apart; the message has both.
#[track_caller]
pub fn assert_within(what: &str, found: f64, truth: f64, tolerance: f64) {
    assert!(
        is_within(found, truth, tolerance),
        "{what}: found {found:.6}, the subject says {truth:.6}: {:+.1} % off, {:.0} % allowed",
        (found / truth - 1.0) * 100.0,
        tolerance * 100.0
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tolerance_is_a_fraction_of_the_truth() {
        assert!(is_within(1.1, 1.0, 0.1001) && is_within(0.9, 1.0, 0.1001));
        assert!(!is_within(1.11, 1.0, 0.1) && !is_within(0.89, 1.0, 0.1));
        assert!(!is_within(f64::NAN, 1.0, 0.1));
        assert!(!is_within(0.0, 1.0, 0.1));
    }

    #[test]
    fn null_is_a_claim_and_absence_is_none() {
        let truth = Truth::new(serde_json::json!({"cause": null, "slow_ranks": "3"}));
        assert_eq!(truth.text("cause"), None);
        assert_eq!(truth.text("slow_ranks"), Some("3"));
        assert!(std::panic::catch_unwind(|| truth.text("symptom").is_some()).is_err());
    }
}
