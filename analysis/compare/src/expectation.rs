//! Expectation about a run, given the first one: Fowler's "performance analysis with expectations".

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::comparison::ExpectationKind;
use crate::experiment::Experiment;
use crate::setups::Setup;

/// Expectation that a user asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Expect {
    /// Linear speedup: the sum over ranks stays the same.
    Strong,
    /// Constant time on every rank.
    Weak,
    /// Runs of equal size take equal time.
    Same,
    /// The sum over ranks is a multiple of the first set-up's: one factor for each further set-up.
    Work(Vec<f64>),
}

impl FromStr for Expect {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "expected strong, weak, same, or work=N, where N says how many times the \
                        work of the first set-up the second one has (work=N,M,... for more)";
        match text {
            "strong" => return Ok(Self::Strong),
            "weak" => return Ok(Self::Weak),
            "same" => return Ok(Self::Same),
            _ => {}
        }
        let list = text.strip_prefix("work=").ok_or(expected)?;
        let factors = list.split(',').map(|number| {
            let factor: f64 = number.trim().parse().map_err(|_| expected)?;
            if factor.is_finite() && factor > 0.0 { Ok(factor) } else { Err(expected) }
        });
        let factors: Result<Vec<f64>, &str> = factors.collect();
        Ok(Self::Work(factors?))
    }
}

/// Expectation applied to set-ups.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expectation {
    /// Kind of the expectation.
    pub kind: ExpectationKind,
    /// Whether the user asked for it; otherwise it follows from ranks and arguments.
    pub asked: bool,
    /// Reason for the choice; one sentence.
    pub reason: String,
    /// Expected sum over ranks by set-up, as a multiple of the first set-up's.
    pub factors: Vec<f64>,
}

impl Expectation {
    /// Returns whether runs of equal size are compared.
    pub fn is_same(&self) -> bool {
        self.kind == ExpectationKind::Same
    }
}

/// Applies the requested expectation, or derives one from ranks and arguments.
///
/// # Errors
/// One sentence if the set-ups do not fit the expectation.
pub fn decide(
    asked: Option<&Expect>,
    setups: &[Setup],
    runs: &[Experiment],
) -> Result<Expectation, String> {
    let ranks: Vec<f64> = setups.iter().map(|setup| f64::from(setup.ranks)).collect();
    let is_one_size = ranks.windows(2).all(|pair| pair[0] == pair[1]);
    let first = ranks.first().copied().unwrap_or(1.0);
    let by_ranks: Vec<f64> = ranks.iter().map(|ranks| ranks / first).collect();
    let (kind, factors, reason) = match asked {
        Some(Expect::Strong) => {
            (ExpectationKind::Strong, vec![1.0; ranks.len()], "asked for".to_owned())
        }
        Some(Expect::Weak) => (ExpectationKind::Weak, by_ranks, "asked for".to_owned()),
        Some(Expect::Same) if !is_one_size => {
            return Err("--expect same compares runs of one number of ranks, and these have \
                        different numbers: use --expect strong or --expect weak."
                .into());
        }
        Some(Expect::Same) => (ExpectationKind::Same, by_ranks, "asked for".to_owned()),
        Some(Expect::Work(factors)) => {
            let needed = setups.len() - 1;
            if factors.len() != needed {
                return Err(format!(
                    "--expect work=N needs one number for each set-up after the first: {needed}, \
                     not {}.",
                    factors.len()
                ));
            }
            let factors = std::iter::once(1.0).chain(factors.iter().copied()).collect();
            (ExpectationKind::Work, factors, "asked for".to_owned())
        }
        None if is_one_size => {
            let reason = "all runs have the same number of ranks".to_owned();
            (ExpectationKind::Same, by_ranks, reason)
        }
        None => {
            let arguments = |setup: &Setup| &runs[setup.runs[0]].arguments;
            let one_input =
                setups.windows(2).all(|pair| arguments(&pair[0]) == arguments(&pair[1]));
            if one_input {
                let reason = "the number of ranks differs and the arguments are the same";
                (ExpectationKind::Strong, vec![1.0; ranks.len()], reason.to_owned())
            } else {
                let reason = "the number of ranks differs and so do the arguments";
                (ExpectationKind::Weak, by_ranks, reason.to_owned())
            }
        }
    };
    Ok(Expectation { kind, asked: asked.is_some(), reason, factors })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expectations_are_read() {
        assert_eq!("strong".parse(), Ok(Expect::Strong));
        assert_eq!("work=8".parse(), Ok(Expect::Work(vec![8.0])));
        assert_eq!("work=2,4.5".parse(), Ok(Expect::Work(vec![2.0, 4.5])));
        for wrong in ["", "work", "work=", "work=0", "work=-1", "work=inf", "work=2,", "linear"] {
            assert!(wrong.parse::<Expect>().unwrap_err().contains("expected strong"), "{wrong}");
        }
    }
}
