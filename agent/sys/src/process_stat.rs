//! State of a process in /proc/pid/stat (proc(5)).

use std::fmt::Display;

/// Facts of a process in /proc/pid/stat.
pub struct ProcessStat {
    /// State of the process, such as 'Z' for a zombie.
    pub state: char,
    /// Id of the parent.
    pub parent: u32,
    /// Start of the process, in clock ticks since boot.
    pub start_time: u64,
}

impl ProcessStat {
    /// Reads the facts of a process: `process` is its id or `self`. Returns `None` if the file
    /// cannot be read.
    pub fn read(process: impl Display) -> Option<Self> {
        let bytes = std::fs::read(format!("/proc/{process}/stat")).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        // The second field, the program's name in parentheses, may contain any bytes.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        Some(Self {
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            start_time: fields.get(19)?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_may_have_any_name() {
        let before = std::fs::read("/proc/self/comm").unwrap();
        for name in [&b"a b"[..], b") Z 1 (", b"\xff\xfe"] {
            std::fs::write("/proc/self/comm", name).unwrap();
            let stat = ProcessStat::read("self").unwrap();
            assert_eq!(stat.parent, std::os::unix::process::parent_id(), "{name:?}");
            assert!(stat.state != 'Z' && stat.start_time > 0, "{name:?}");
        }
        std::fs::write("/proc/self/comm", before).unwrap();
        assert!(ProcessStat::read(u32::MAX).is_none());
    }
}
