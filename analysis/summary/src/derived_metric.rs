//! Metrics derived from perf events by expressions (SC10, Algorithm 1: finalize).

use exmex::{Express, FlatEx};

/// A metric as an expression over sums of events.
#[derive(Clone, Debug)]
pub struct DerivedMetric {
    /// Name of the metric.
    pub name: String,
    /// Expression as the user wrote it.
    pub expression: String,
    parsed: FlatEx<f64>,
}

/// Name of the variable for wall time in seconds, summed over ranks and their threads.
pub const SECONDS: &str = "seconds";

impl DerivedMetric {
    /// Parses `name = expression; name = expression`. An error is a sentence without its end that
    /// names the character at which the list cannot be read, counted from 1.
    pub fn parse_list(list: &str) -> Result<Vec<Self>, String> {
        let mut metrics: Vec<Self> = Vec::new();
        let mut begin = 0;
        for item in list.split(';') {
            if !item.trim().is_empty() {
                let metric = Self::parse(item)
                    .map_err(|(at, reason)| format!("character {}: {reason}", begin + at + 1))?;
                if metrics.iter().any(|other| other.name == metric.name) {
                    let name = &metric.name;
                    return Err(format!("character {}: `{name}` is defined twice", begin + 1));
                }
                metrics.push(metric);
            }
            begin += item.chars().count() + 1;
        }
        Ok(metrics)
    }

    /// Returns the metric of the given definition, which must be valid.
    pub fn default_ipc() -> Option<Self> {
        Self::parse("ipc = instructions / cycles").ok()
    }

    /// Parses one definition. An error has the offset of the first wrong character.
    fn parse(item: &str) -> Result<Self, (usize, String)> {
        let allowed = |it: char| it.is_ascii_alphanumeric() || it.is_ascii_whitespace();
        let wrong =
            item.chars().enumerate().find(|(_, it)| !allowed(*it) && !"_.+-*/^(),=".contains(*it));
        if let Some((at, wrong)) = wrong {
            return Err((at, format!("`{wrong}` belongs to no expression")));
        }
        let Some((name, expression)) = item.split_once('=') else {
            return Err((0, "a metric is written `name = expression`".into()));
        };
        let offset = name.len() + 1;
        let name = name.trim();
        let is_first = |it: char| it.is_ascii_alphabetic() || it == '_';
        let is_name = |it: char| it.is_ascii_alphanumeric() || it == '_';
        if name.is_empty() {
            return Err((0, "the name before `=` is missing".into()));
        }
        if !name.starts_with(is_first) || !name.chars().all(is_name) {
            return Err((0, format!("`{name}` is no name of letters, digits and _")));
        }
        match exmex::parse::<f64>(expression) {
            Ok(parsed) if !expression.contains('=') => {
                Ok(Self { name: name.to_owned(), expression: expression.trim().to_owned(), parsed })
            }
            _ => Err((
                offset + readable(expression),
                format!("the expression of `{name}` cannot be read from here on"),
            )),
        }
    }

    /// Returns the names in the expression.
    pub fn variables(&self) -> &[String] {
        self.parsed.var_names()
    }

    /// Returns the value with `lookup` of each name; `None` if a name has no value, or if the
    /// result is not finite, as after a division by zero.
    pub fn value(&self, lookup: impl Fn(&str) -> Option<f64>) -> Option<f64> {
        let values: Option<Vec<f64>> = self.variables().iter().map(|name| lookup(name)).collect();
        self.parsed.eval(&values?).ok().filter(|value| value.is_finite())
    }
}

/// Returns the name of an event as expressions write it: with _ for each -.
pub fn variable_of(event: &str) -> String {
    event.replace('-', "_")
}

/// Returns the length of the longest beginning of an expression that some end completes, in bytes.
fn readable(expression: &str) -> usize {
    let completes = |begin: &str| {
        let open = begin.matches('(').count().saturating_sub(begin.matches(')').count());
        ["", "1"].iter().any(|last| {
            let whole = format!("{begin}{last}{}", ")".repeat(open));
            !begin.contains('=') && exmex::parse::<f64>(&whole).is_ok()
        })
    };
    // Several characters may only be readable together, as names are: the last one decides.
    let ends = (1..=expression.len()).rev();
    ends.map(|end| &expression[..end]).find(|begin| completes(begin)).map_or(0, str::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_agree_with_hand_arithmetic() {
        let list = "ipc = instructions / cycles; mpki = 1000 * cache_misses / instructions;\
                    mix = (a + 2.5) * -b ^ 2";
        let metrics = DerivedMetric::parse_list(list).unwrap();
        let lookup = |name: &str| match name {
            "instructions" => Some(3e9),
            "cycles" => Some(2e9),
            "cache_misses" => Some(6e6),
            "a" => Some(1.5),
            "b" => Some(3.0),
            _ => None,
        };
        let values: Vec<_> = metrics.iter().map(|metric| metric.value(lookup)).collect();
        assert_eq!(values[..2], [Some(1.5), Some(2.0)]);
        // exmex binds a sign more closely than a power.
        assert_eq!(values[2], Some(36.0));
        assert_eq!(metrics[1].expression, "1000 * cache_misses / instructions");
    }

    #[test]
    fn without_an_event_or_by_zero_there_is_no_value() {
        let metrics = DerivedMetric::parse_list("x = a / b").unwrap();
        let value =
            |a: f64, b: Option<f64>| metrics[0].value(|name| if name == "a" { Some(a) } else { b });
        assert_eq!(value(1.0, Some(0.0)), None);
        assert_eq!(value(0.0, Some(0.0)), None);
        assert_eq!(value(1.0, None), None);
        assert_eq!(value(1.0, Some(4.0)), Some(0.25));
    }

    #[test]
    fn errors_name_the_first_wrong_character() {
        for (list, at) in [
            ("ipc = instructions / cycles; mpki = a +* b", 40),
            ("ipc = a $ b", 9),
            ("a b = 1", 1),
            ("x = a; x = b", 7),
            ("ipc", 1),
            ("x = a b", 7),
            ("x = (a", 7),
            ("x = ", 5),
        ] {
            let error = DerivedMetric::parse_list(list).expect_err(list);
            assert!(error.starts_with(&format!("character {at}: ")), "{list}: {error}");
        }
        let error = DerivedMetric::parse_list(" = a").expect_err("no name");
        assert_eq!(error, "character 1: the name before `=` is missing");
        assert!(DerivedMetric::parse_list(" ; ").unwrap().is_empty());
    }
}
