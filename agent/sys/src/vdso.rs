//! The vDSO: code that the kernel maps into every process and that belongs to no file (vdso(7)).

/// Path of the vDSO in tables of modules, as in /proc/pid/maps.
pub const VDSO: &str = "[vdso]";

/// Returns the ELF image of the vDSO in this process; `None` if the kernel maps none.
///
/// The image in another process of the node is equal if its build-id is equal.
pub fn image() -> Option<&'static [u8]> {
    // SAFETY: getauxval has no preconditions.
    let start = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with(VDSO))?;
    let (low, high) = line.split_whitespace().next()?.split_once('-')?;
    let [low, high] = [low, high].map(|address| u64::from_str_radix(address, 16).ok());
    let (low, high) = (low?, high?);
    // SAFETY: the kernel has mapped the image there, readable, for the life of the process.
    (low == start && high > low)
        .then(|| unsafe { std::slice::from_raw_parts(low as *const u8, (high - low) as usize) })
}
