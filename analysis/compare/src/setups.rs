//! Set-ups: groups of runs that repeat each other.

use crate::experiment::{Experiment, base_name};

/// A program with its arguments on a number of ranks, and its runs.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Number of ranks.
    pub ranks: u32,
    /// Indices of its runs, in the order given.
    pub runs: Vec<usize>,
}

/// Groups runs into set-ups by executable (without folders), arguments and ranks. If all runs are
/// of one set-up, two versions are compared, distinguished by the path of the executable, by the
/// arguments of the command that named them, or by their folders. Set-ups are sorted by ranks, then
/// in the order given.
///
/// # Errors
/// One sentence if there are fewer than two set-ups or versions.
pub fn group(runs: &[Experiment]) -> Result<Vec<Setup>, String> {
    if runs.len() < 2 {
        return Err("A comparison needs at least two summaries.".into());
    }
    let setup = |run: &Experiment| (run.program().to_owned(), run.arguments.clone(), run.ranks);
    let keys: [&dyn Fn(&Experiment) -> String; 4] = [
        &|run| format!("{:?}", setup(run)),
        &|run| run.argument.to_string(),
        &|run| run.executable.clone(),
        &|run| folder(&run.source).to_owned(),
    ];
    for (index, key) in keys.into_iter().enumerate() {
        let mut setups = by_key(runs, key);
        // Exactly two versions are compared; three files with one version each repeat nothing.
        let enough = if index == 0 { setups.len() >= 2 } else { setups.len() == 2 };
        if enough {
            setups.sort_by_key(|setup| setup.ranks);
            return Ok(setups);
        }
    }
    Err("All runs have the same executable, arguments and ranks, and no two versions \
         can be distinguished: name two files, or one folder for each version."
        .into())
}

fn by_key(runs: &[Experiment], key: impl Fn(&Experiment) -> String) -> Vec<Setup> {
    let mut groups: Vec<(String, Setup)> = Vec::new();
    for (index, run) in runs.iter().enumerate() {
        let key = key(run);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, setup)) => setup.runs.push(index),
            None => groups.push((key, Setup { ranks: run.ranks, runs: vec![index] })),
        }
    }
    groups.into_iter().map(|(_, setup)| setup).collect()
}

fn folder(path: &str) -> &str {
    &path[..path.len() - base_name(path).len()]
}

/// Returns the mean; 0 for no values.
pub fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for value in values {
        sum += value;
        count += 1.0;
    }
    if count > 0.0 { sum / count } else { 0.0 }
}

/// Returns the standard deviation; `None` for fewer than two values.
pub fn deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values.iter().copied());
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (values.len() - 1) as f64).sqrt())
}
