//! Names of perf events, as perf-list(1) has them.

/// Maximum number of events.
pub const MAX_EVENTS: usize = 8;

/// A perf event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventChoice {
    /// Name as perf-list(1) spells it.
    pub name: String,
    /// PERF_TYPE_* of perf_event_open(2).
    pub kind: u32,
    /// `config` of perf_event_open(2).
    pub config: u64,
}

const HARDWARE: u32 = 0;
const SOFTWARE: u32 = 1;
const CACHE: u32 = 3;
const RAW: u32 = 4;

/// Names of single events, with type and `config` (linux/perf_event.h).
const NAMES: [(&str, u32, u64); 27] = [
    ("cycles", HARDWARE, 0),
    ("cpu-cycles", HARDWARE, 0),
    ("instructions", HARDWARE, 1),
    ("cache-references", HARDWARE, 2),
    ("cache-misses", HARDWARE, 3),
    ("branches", HARDWARE, 4),
    ("branch-instructions", HARDWARE, 4),
    ("branch-misses", HARDWARE, 5),
    ("bus-cycles", HARDWARE, 6),
    ("stalled-cycles-frontend", HARDWARE, 7),
    ("idle-cycles-frontend", HARDWARE, 7),
    ("stalled-cycles-backend", HARDWARE, 8),
    ("idle-cycles-backend", HARDWARE, 8),
    ("ref-cycles", HARDWARE, 9),
    ("cpu-clock", SOFTWARE, 0),
    ("task-clock", SOFTWARE, 1),
    ("page-faults", SOFTWARE, 2),
    ("faults", SOFTWARE, 2),
    ("context-switches", SOFTWARE, 3),
    ("cs", SOFTWARE, 3),
    ("cpu-migrations", SOFTWARE, 4),
    ("migrations", SOFTWARE, 4),
    ("minor-faults", SOFTWARE, 5),
    ("major-faults", SOFTWARE, 6),
    ("alignment-faults", SOFTWARE, 7),
    ("emulation-faults", SOFTWARE, 8),
    ("cgroup-switches", SOFTWARE, 11),
];

/// Caches of `PERF_TYPE_HW_CACHE`, in the order of their numbers.
const CACHES: [&str; 7] = ["L1-dcache", "L1-icache", "LLC", "dTLB", "iTLB", "branch", "node"];
/// Operations on caches, in the order of their numbers, in the singular of perf's names.
const OPERATIONS: [&str; 3] = ["load", "store", "prefetch"];

/// Parses a list of names separated by commas; an error names the first name that is no event, or
/// the first one beyond [`MAX_EVENTS`]. A name that occurs again is passed over.
pub fn parse_events(list: &str) -> Result<Vec<EventChoice>, String> {
    let mut events: Vec<EventChoice> = Vec::new();
    for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let event = parse(name).ok_or_else(|| format!("`{name}` is not the name of an event"))?;
        if events.iter().any(|other| (other.kind, other.config) == (event.kind, event.config)) {
            continue;
        }
        if events.len() == MAX_EVENTS {
            return Err(format!("`{name}` is one more than {MAX_EVENTS} events"));
        }
        events.push(event);
    }
    Ok(events)
}

/// Parses the name of an event, in upper or lower case.
fn parse(name: &str) -> Option<EventChoice> {
    let name = name.to_ascii_lowercase();
    let known = NAMES.iter().find(|(known, ..)| *known == name);
    match known {
        Some((_, kind, config)) => Some(EventChoice { name, kind: *kind, config: *config }),
        None => cache(&name).or_else(|| raw(name)),
    }
}

/// Parses an event of a cache, such as `llc-load-misses` or `l1-dcache-loads`.
fn cache(name: &str) -> Option<EventChoice> {
    let (cache, spelling, rest) = CACHES.iter().enumerate().find_map(|(number, spelling)| {
        let rest = name.strip_prefix(&spelling.to_ascii_lowercase())?;
        Some((number, spelling, rest))
    })?;
    let event = rest.strip_prefix('-')?;
    let (operation, result) = OPERATIONS.iter().enumerate().find_map(|(number, operation)| {
        match event.strip_prefix(operation)? {
            "s" | "es" => Some((number, 0)),
            "-misses" => Some((number, 1)),
            _ => None,
        }
    })?;
    let config = (cache | operation << 8 | result << 16) as u64;
    Some(EventChoice { name: format!("{spelling}{rest}"), kind: CACHE, config })
}

/// Parses a raw event: r and the hexadecimal code of the processor's manual.
fn raw(name: String) -> Option<EventChoice> {
    let code = name.strip_prefix('r').filter(|code| !code.is_empty())?;
    let is_hexadecimal = code.bytes().all(|byte| byte.is_ascii_hexdigit());
    let config = u64::from_str_radix(code, 16).ok().filter(|_| is_hexadecimal)?;
    Some(EventChoice { name, kind: RAW, config })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_perf() {
        let list = "Cycles, llc-load-misses,LLC-LOAD-MISSES,page-faults,faults,rC4,\
                    l1-dcache-prefetches";
        let events = parse_events(list).unwrap();
        let found: Vec<_> =
            events.iter().map(|it| (it.name.as_str(), it.kind, it.config)).collect();
        let truth = [
            ("cycles", 0, 0),
            ("LLC-load-misses", 3, 0x1_0002),
            ("page-faults", 1, 2),
            ("rc4", 4, 0xc4),
            ("L1-dcache-prefetches", 3, 0x200),
        ];
        assert_eq!(found, truth);
        assert_eq!(parse_events(" , "), Ok(Vec::new()));
    }

    #[test]
    fn an_unknown_event_is_named() {
        for (list, wrong) in
            [("cycles,cycels", "cycels"), ("r+1", "r+1"), ("llc-loadx", "llc-loadx")]
        {
            let error = parse_events(list).unwrap_err();
            assert_eq!(error, format!("`{wrong}` is not the name of an event"));
        }
        let nine = "r1,r2,r3,r4,r5,r6,r7,r8,r9";
        assert_eq!(parse_events(nine).unwrap_err(), "`r9` is one more than 8 events");
    }
}
