use proptest::prelude::*;

use super::*;

fn read(environment: &[(&str, &str)]) -> (Settings, Vec<String>) {
    let pairs = environment.iter().map(|(name, value)| (name.into(), value.into()));
    let (settings, warnings) = Settings::from_env(pairs);
    (settings, warnings.iter().map(Warning::to_string).collect())
}

#[test]
fn an_empty_environment_is_the_default() {
    assert_eq!(read(&[("PATH", "/bin"), ("PLIMSOLL_PERIOD", "")]), (Settings::default(), vec![]));
}

/// The defaults in the table are the defaults in the struct, and can be read.
#[test]
fn defaults_in_the_table_are_those_of_the_struct() {
    for variable in &TABLE {
        if variable.state == State::Implemented && !variable.default.is_empty() {
            let environment = [(variable.name, variable.default)];
            assert_eq!(read(&environment), (Settings::default(), vec![]), "{}", variable.name);
        }
    }
}

#[test]
fn values_are_taken() {
    let (settings, warnings) = read(&[
        ("PLIMSOLL_PERIOD", "1ms"),
        ("PLIMSOLL_CLOCK", "WALL"),
        ("PLIMSOLL_OUTPUT", "/scratch/%e-%j"),
        ("PLIMSOLL_FORMATS", "json"),
        ("PLIMSOLL_LABELS", "/home/me/labels"),
        ("PLIMSOLL_INCLUDE", "lmp*, cp2k*"),
        ("PLIMSOLL_EXCLUDE", "*.debug"),
        ("PLIMSOLL_RANKS", "0-3"),
        ("PLIMSOLL_MEMORY", "16MiB"),
        ("PLIMSOLL_VERBOSE", "2"),
        ("PLIMSOLL_DISABLE", "yes"),
        ("PLIMSOLL_ROOT_PID", "4711"),
        ("PLIMSOLL_LIBRARY", "/opt/libplimsoll.so"),
    ]);
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!((settings.period_ns, settings.clock), (1_000_000, ClockChoice::Wall));
    assert_eq!(settings.output, "/scratch/%e-%j");
    assert_eq!(settings.formats, Formats { text: false, json: true, html: false });
    assert_eq!(settings.labels.as_deref(), Some(Path::new("/home/me/labels")));
    assert!(settings.watches_program(Path::new("/bin/lmp_mpi")));
    assert!(!settings.watches_program(Path::new("/bin/lmp.debug")));
    assert!(!settings.watches_program(Path::new("/bin/sh")));
    assert!(settings.ranks.contains(3) && !settings.ranks.contains(4));
    assert_eq!((settings.memory_bytes, settings.verbose), (16 << 20, 2));
    assert!(settings.disable);
    assert_eq!(settings.root_pid, Some(4711));
    let in_effect = settings.in_effect();
    assert_eq!(in_effect["PLIMSOLL_PERIOD"], "1ms");
    assert_eq!(in_effect["PLIMSOLL_REGIONS"], "on");
    assert_eq!((settings.openmp, in_effect["PLIMSOLL_OPENMP"].as_str()), (true, "on"));
    assert!(!in_effect.contains_key(ROOT_PID));
}

#[test]
fn an_unreadable_value_leaves_the_default_with_a_warning() {
    for variable in TABLE.iter().filter(|variable| variable.state == State::Implemented) {
        if [LABELS, "PLIMSOLL_INCLUDE", "PLIMSOLL_EXCLUDE"].contains(&variable.name) {
            continue; // any text is the name of a file, or a glob
        }
        let (settings, warnings) = read(&[(variable.name, "%wrong!")]);
        assert_eq!(settings, Settings::default(), "{}", variable.name);
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains(variable.expected), "{warnings:?}");
    }
    let (settings, warnings) = read(&[("PLIMSOLL_MEMORY", "64")]);
    assert_eq!(settings, Settings::default());
    assert!(warnings[0].ends_with("; the default 64MiB is used."), "{warnings:?}");
    assert_eq!(
        read(&[("PLIMSOLL_PERIOD", "4")]).1,
        ["PLIMSOLL_PERIOD=4 cannot be read: expected a time from 100us to 10s with its unit \
          (ns, us, ms, s), such as 4ms; the default 4ms is used."]
    );
}

#[test]
fn periods_are_bounded() {
    for (asked, period_ns, used) in [("1us", 100_000, "100us"), ("1000s", 10_000_000_000, "10s")] {
        let (settings, warnings) = read(&[("PLIMSOLL_PERIOD", asked)]);
        assert_eq!(settings.period_ns, period_ns);
        assert_eq!(settings.in_effect()["PLIMSOLL_PERIOD"], used);
        assert!(warnings.len() == 1 && warnings[0].ends_with(&format!("; {used} is used.")));
    }
    assert_eq!(read(&[("PLIMSOLL_PERIOD", "100us")]).1, Vec::<String>::new());
}

#[test]
fn unknown_names_are_reported_with_a_suggestion() {
    for (name, meant) in [
        ("PLIMSOLL_PERIDO", "did you mean PLIMSOLL_PERIOD?"),
        ("PLIMSOLL_REGION", "did you mean PLIMSOLL_REGIONS?"),
        ("PLIMSOLL_period", "did you mean PLIMSOLL_PERIOD?"),
        ("PLIMSOLL_FROBNICATE", "`plimsoll run --help` lists all settings."),
        ("PLIMSOLL_ROOT_PIT", "`plimsoll run --help` lists all settings."),
    ] {
        let (settings, warnings) = read(&[(name, "1")]);
        assert_eq!(settings, Settings::default());
        assert!(warnings.len() == 1 && warnings[0].ends_with(meant), "{warnings:?}");
    }
}

#[test]
fn all_unknown_names_fit_on_one_line() {
    let name = |number: usize| format!("PLIMSOLL_FROBNICATE_{number}");
    let names: Vec<String> = (10..40).map(name).collect();
    let mut variables: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "1")).collect();
    variables.push(("PLIMSOLL_PERIDO", "1"));
    let (_, warnings) = read(&variables);
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(warning.starts_with("PLIMSOLL_FROBNICATE_10, PLIMSOLL_FROBNICATE_11, "), "{warning}");
    let end = " and 23 more are unknown and ignored; `plimsoll run --help` lists all settings.";
    assert!(warning.ends_with(end), "{warning}");
    let (_, warnings) = read(&variables[29..]);
    let both = "PLIMSOLL_FROBNICATE_39 and PLIMSOLL_PERIDO (did you mean PLIMSOLL_PERIOD?) are \
                unknown and ignored; `plimsoll run --help` lists all settings.";
    assert_eq!(warnings, [both]);
}

#[test]
fn every_aggregation_of_threads_is_taken() {
    for (value, expected) in [
        ("sum", ThreadsChoice::Sum),
        ("set", ThreadsChoice::Set),
        ("KEY", ThreadsChoice::Key),
        ("calltree", ThreadsChoice::Calltree),
        ("all", ThreadsChoice::All),
    ] {
        let (settings, warnings) = read(&[("PLIMSOLL_THREADS", value)]);
        assert_eq!((settings.threads, warnings.len()), (expected, 0), "{value}");
        assert_eq!(settings.in_effect()["PLIMSOLL_THREADS"], value);
    }
    let (settings, warnings) = read(&[("PLIMSOLL_THREADS", "most")]);
    assert_eq!(settings, Settings::default());
    assert_eq!(
        warnings,
        ["PLIMSOLL_THREADS=most cannot be read: expected sum, set, key, calltree or all; the \
          default key is used."]
    );
}

#[test]
fn every_list_of_formats_is_taken() {
    let formats = |text, json, html| Formats { text, json, html };
    for (list, expected) in [
        ("text,json,html", Formats::default()),
        ("html, json, TEXT", Formats::default()),
        ("text", formats(true, false, false)),
        ("html,json", formats(false, true, true)),
        ("html", formats(false, false, true)),
    ] {
        let (settings, warnings) = read(&[("PLIMSOLL_FORMATS", list)]);
        assert_eq!((settings.formats, warnings.len()), (expected, 0), "{list}");
    }
}

#[test]
fn without_regions_the_clock_is_wall_time() {
    let interrupts = Warning::Interrupts.to_string();
    let (settings, warnings) = read(&[("PLIMSOLL_REGIONS", "off")]);
    assert_eq!((settings.clock, warnings), (ClockChoice::Wall, vec![interrupts.clone()]));
    let (settings, warnings) = read(&[("PLIMSOLL_REGIONS", "off"), ("PLIMSOLL_CLOCK", "wall")]);
    assert_eq!((settings.clock, warnings), (ClockChoice::Wall, vec![interrupts.clone()]));
    let (settings, warnings) = read(&[("PLIMSOLL_REGIONS", "off"), ("PLIMSOLL_CLOCK", "cpu")]);
    assert_eq!((settings.clock, warnings.len()), (ClockChoice::Wall, 2));
    // With regions, no call is interrupted.
    let (settings, warnings) = read(&[("PLIMSOLL_CLOCK", "wall")]);
    assert_eq!((settings.clock, warnings.len()), (ClockChoice::Wall, 0));
}

#[test]
fn warnings_are_short_and_bring_no_escapes_to_a_terminal() {
    let value = format!("\u{1b}]0;title\u{7}\u{9b}2J\u{202e}\n{}", "long".repeat(10_000));
    for name in TABLE.iter().map(|variable| variable.name).chain([value.as_str()]) {
        let name = if name == value { format!("{PREFIX}{value}") } else { name.to_owned() };
        let (_, warnings) = read(&[(&name, &value)]);
        for warning in warnings {
            let shown = warning.to_string();
            assert!(!shown.chars().any(|c| c.is_control() || c == '\u{202e}'), "{shown}");
            assert!(shown.len() < 1000, "{shown}");
        }
    }
}

#[test]
fn the_first_of_two_counts() {
    let (settings, _) = read(&[("PLIMSOLL_PERIOD", "1ms"), ("PLIMSOLL_PERIOD", "2ms")]);
    assert_eq!(settings.period_ns, 1_000_000);
}

proptest! {
    #[test]
    fn any_environment_is_read(
        which in 0..TABLE.len(),
        value in "\\PC{0,20}",
        name in "[A-Z_]{0,9}",
    ) {
        read(&[(TABLE[which].name, &value), (&format!("PLIMSOLL_{name}"), &value)]);
    }
}
