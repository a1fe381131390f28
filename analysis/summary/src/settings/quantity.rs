//! Parsers of quantities with units and of booleans.

/// Parses a time such as `4ms` or `0.5 s` into nanoseconds. Returns `None` for anything else,
/// including a number without a unit.
pub fn parse_duration_ns(text: &str) -> Option<u64> {
    parse(text, &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)])
}

/// Parses a size such as `64MiB` or `1.5GB` into bytes. Returns `None` for anything else,
/// including a number without a unit.
pub fn parse_size_bytes(text: &str) -> Option<u64> {
    const UNITS: &[(&str, f64)] = &[
        ("kib", 1024.0),
        ("mib", 1_048_576.0),
        ("gib", 1_073_741_824.0),
        ("kb", 1e3),
        ("mb", 1e6),
        ("gb", 1e9),
        ("b", 1.0),
    ];
    parse(text, UNITS)
}

fn parse(text: &str, units: &[(&str, f64)]) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim_start();
    let (_, factor) = units.iter().find(|(name, _)| unit.eq_ignore_ascii_case(name))?;
    let value = number.parse::<f64>().ok()? * factor;
    // Beyond the range of 64 bits the value is a typing error.
    (value.is_finite() && value < 9e18).then(|| value.round() as u64)
}

/// Parses 1/0, true/false, yes/no, on/off.
pub fn parse_boolean(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// Formats a time in the largest unit that needs no fraction: `100us`.
pub fn format_duration_ns(duration_ns: u64) -> String {
    for (unit, factor) in [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)] {
        if duration_ns > 0 && duration_ns.is_multiple_of(factor) {
            return format!("{}{unit}", duration_ns / factor);
        }
    }
    format!("{duration_ns}ns")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(parse_duration_ns("4ms"), Some(4_000_000));
        assert_eq!(parse_duration_ns(" 0.25 S "), Some(250_000_000));
        assert_eq!(parse_duration_ns("100us"), Some(100_000));
        assert_eq!(parse_duration_ns("7ns"), Some(7));
        for text in ["", "4", "ms", "-4ms", "4 m", "1.2.3s", "1e3s", "999999999999s", "4ms4"] {
            assert_eq!(parse_duration_ns(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_are_binary_or_decimal() {
        assert_eq!(parse_size_bytes("64MiB"), Some(64 << 20));
        assert_eq!(parse_size_bytes("64mb"), Some(64_000_000));
        assert_eq!(parse_size_bytes("1.5 GiB"), Some(3 << 29));
        assert_eq!(parse_size_bytes("512 KB"), Some(512_000));
        assert_eq!(parse_size_bytes("8KiB"), Some(8192));
        assert_eq!(parse_size_bytes("2gb"), Some(2_000_000_000));
        for text in ["", "MiB", "64", "64 M", "lots", "1e30", "nan"] {
            assert_eq!(parse_size_bytes(text), None, "{text}");
        }
    }

    #[test]
    fn yes_and_no_have_many_names() {
        for (yes, no) in [("1", "0"), ("true", "false"), ("Yes", "No"), ("ON", "OFF")] {
            assert_eq!((parse_boolean(yes), parse_boolean(no)), (Some(true), Some(false)));
        }
        assert_eq!(parse_boolean("2"), None);
    }

    proptest! {
        #[test]
        fn a_time_that_is_written_is_read_back(duration_ns in 0u64..1 << 50) {
            prop_assert_eq!(parse_duration_ns(&format_duration_ns(duration_ns)), Some(duration_ns));
        }

        #[test]
        fn nothing_panics(text in "\\PC{0,12}") {
            parse_duration_ns(&text);
            parse_size_bytes(&text);
            parse_boolean(&text);
        }
    }
}
