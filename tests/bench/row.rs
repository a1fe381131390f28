//! One line of the table: a measurement and its baseline.

use serde_json::{Value, json};

/// A measured cost.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name of the cost.
    pub name: String,
    /// Program on which the cost was measured.
    pub subject: String,
    /// The cost.
    pub value: f64,
    /// Unit of the cost, of the baseline and of the target.
    pub unit: String,
    /// Cost without Plimsoll, or with something in its place that does nothing; measured in the
    /// same run.
    pub baseline: f64,
    /// Largest acceptable cost; `None` if no target is set.
    pub target: Option<f64>,
}

impl Row {
    /// Creates a row without a target.
    pub fn new(name: &str, subject: &str, value: f64, unit: &str, baseline: f64) -> Self {
        let (name, subject, unit) = (name.to_owned(), subject.to_owned(), unit.to_owned());
        Self { name, subject, value, unit, baseline, target: None }
    }

    /// Sets the largest acceptable cost.
    #[must_use]
    pub const fn target(mut self, most: f64) -> Self {
        self.target = Some(most);
        self
    }

    /// Returns whether the target was reached; `None` without a target.
    pub fn reached(&self) -> Option<bool> {
        self.target.map(|most| self.value <= most)
    }

    /// Returns the row as JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "subject": self.subject,
            "value": self.value,
            "unit": self.unit,
            "baseline": self.baseline,
            "target": self.target,
            "reached": self.reached(),
        })
    }

    /// Reads a row from the JSON of [`Row::to_json`].
    pub fn from_json(value: &Value) -> Option<Self> {
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        Some(Self {
            name: text("name")?,
            subject: text("subject")?,
            value: value["value"].as_f64()?,
            unit: text("unit")?,
            baseline: value["baseline"].as_f64()?,
            target: value["target"].as_f64(),
        })
    }
}

/// Formats the rows as a table for a terminal.
pub fn table(rows: &[Row]) -> String {
    let heads = ["cost", "subject", "value", "unit", "baseline", "target", "reached"];
    let mut lines = vec![heads.map(str::to_owned)];
    for row in rows {
        let reached = match row.reached() {
            Some(true) => "yes",
            Some(false) => "no",
            None => "-",
        };
        lines.push([
            row.name.clone(),
            row.subject.clone(),
            number(row.value),
            row.unit.clone(),
            number(row.baseline),
            row.target.map_or_else(|| "-".to_owned(), number),
            reached.to_owned(),
        ]);
    }
    let widths: Vec<usize> = (0..heads.len())
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Formats a number with three significant digits.
fn number(value: f64) -> String {
    let digits = if value == 0.0 { 0 } else { 2 - value.abs().log10().floor() as i32 };
    format!("{value:.*}", digits.clamp(0, 4) as usize)
}
