//! Request of PLIMSOLL_TRACE to keep the samples of a random sample of ranks.

/// Minimum and maximum confidence in percent.
const CONFIDENCES: [f64; 2] = [50.0, 99.9];
/// Minimum and maximum error in percent.
const ERRORS: [f64; 2] = [0.1, 50.0];

/// Precision with which means over the sampled ranks stand for means over all ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingRequest {
    /// Minimum probability that an interval contains the mean over all ranks: 0.5 to 0.999.
    pub confidence: f64,
    /// Maximum half-width of an interval, as a fraction of the mean: 0.001 to 0.5.
    pub error: f64,
    /// Seed of the random choice; `None`: derived from the job.
    pub seed: Option<u32>,
}

impl Default for SamplingRequest {
    fn default() -> Self {
        Self { confidence: 0.95, error: 0.03, seed: None }
    }
}

impl SamplingRequest {
    /// Parses a value of PLIMSOLL_TRACE: `sample`, or `sample:` and a list such as
    /// `confidence=95%,error=3%` in any order. Returns `None` if the value does not begin in that
    /// way, and an error, a sentence without its end, if an entry of the list is wrong.
    pub fn parse(value: &str) -> Option<Result<Self, String>> {
        match value.split_once(':') {
            None => (value == "sample").then(|| Ok(Self::default())),
            Some((name, list)) => (name == "sample").then(|| Self::parse_list(list)),
        }
    }

    fn parse_list(list: &str) -> Result<Self, String> {
        let mut request = Self::default();
        let mut given: Vec<&str> = Vec::new();
        for entry in list.split(',').map(str::trim) {
            let Some((key, value)) = entry.split_once('=') else {
                return Err(format!("`{entry}` lacks its value"));
            };
            let (key, value) = (key.trim(), value.trim());
            if given.contains(&key) {
                return Err(format!("`{key}` is given twice"));
            }
            given.push(key);
            match key {
                "confidence" => request.confidence = percentage(key, value, CONFIDENCES)?,
                "error" => request.error = percentage(key, value, ERRORS)?,
                "seed" => {
                    let seed = value.parse().map_err(|_| {
                        format!("seed={value} is no whole number from 0 to {}", u32::MAX)
                    })?;
                    request.seed = Some(seed);
                }
                _ => return Err(format!("`{key}` is none of confidence, error, seed")),
            }
        }
        Ok(request)
    }
}

/// Parses a percentage within bounds, and returns it as a fraction.
fn percentage(key: &str, value: &str, [least, most]: [f64; 2]) -> Result<f64, String> {
    let Some(number) = value.strip_suffix('%') else {
        return Err(format!("{key}={value} lacks its percent sign"));
    };
    let number: f64 =
        number.trim_end().parse().map_err(|_| format!("{key}={value} is no percentage"))?;
    if !(least..=most).contains(&number) {
        return Err(format!("{key}={value} is not from {least}% to {most}%"));
    }
    Ok(number / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_in_any_order_and_may_be_missing() {
        let request = |confidence, error, seed| SamplingRequest { confidence, error, seed };
        for (value, truth) in [
            ("sample", request(0.95, 0.03, None)),
            ("sample:confidence=90%,error=8%", request(0.9, 0.08, None)),
            ("sample:error=1%,confidence=99%", request(0.99, 0.01, None)),
            ("sample:error=2.5 %", request(0.95, 0.025, None)),
            ("sample: seed=7 , confidence=99.9%", request(0.999, 0.03, Some(7))),
            ("sample:confidence=50%,error=0.1%", request(0.5, 0.001, None)),
        ] {
            let parsed = SamplingRequest::parse(value).expect(value).expect(value);
            let differences =
                [parsed.confidence - truth.confidence, parsed.error - truth.error].map(f64::abs);
            assert!(differences.iter().all(|it| *it < 1e-12), "{value}: {parsed:?}");
            assert_eq!(parsed.seed, truth.seed, "{value}");
        }
        for value in ["samples", "clusters", "sampled:error=1%", ""] {
            assert_eq!(SamplingRequest::parse(value), None, "{value}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (list, reason) in [
            ("", "`` lacks its value"),
            ("confidence", "`confidence` lacks its value"),
            ("confidence=95%,", "`` lacks its value"),
            ("confidence=0.95", "confidence=0.95 lacks its percent sign"),
            ("confidence=much%", "confidence=much% is no percentage"),
            ("confidence=nan%", "confidence=nan% is not from 50% to 99.9%"),
            ("confidence=100%", "confidence=100% is not from 50% to 99.9%"),
            ("confidence=49.9%", "confidence=49.9% is not from 50% to 99.9%"),
            ("error=0%", "error=0% is not from 0.1% to 50%"),
            ("error=-3%", "error=-3% is not from 0.1% to 50%"),
            ("error=3%,error=4%", "`error` is given twice"),
            ("precision=3%", "`precision` is none of confidence, error, seed"),
            ("seed=-1", "seed=-1 is no whole number from 0 to 4294967295"),
        ] {
            let parsed = SamplingRequest::parse(&format!("sample:{list}"));
            assert_eq!(parsed, Some(Err(reason.to_owned())), "{list}");
        }
    }
}
