//! Symbols of an MPI function: its C name, and the names that Fortran compilers and the Fortran
//! interfaces of MPI derive from it (MPI-4.1, 19.1.5).

use super::{Call, Provider};

/// Size of a buffer that holds every symbol with its NUL, in bytes.
pub const MAX_SYMBOL_BYTES: usize = 64;

/// Calling convention. All symbols of one convention are names of one definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Convention {
    /// C: arguments by value.
    C = 0,
    /// `mpif.h` and `use mpi`: arguments by reference, then ierror, then the lengths of texts.
    /// Handles are integers.
    Fortran = 1,
    /// `use mpi_f08`: as [`Convention::Fortran`], but ierror may be absent, a null pointer.
    F08 = 2,
    /// `use mpi_f08` with TS 29113: buffers are descriptors; their first word is the address.
    F08Descriptors = 3,
}

impl Convention {
    /// Number of conventions.
    pub const COUNT: usize = 4;
}

/// Rule that derives one symbol from the C name of a function.
#[derive(Clone, Copy, Debug)]
pub struct Symbol {
    /// Calling convention of the function with this symbol.
    pub convention: Convention,
    case: Case,
    suffix: &'static str,
    /// Functions that have this symbol.
    of: Of,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    AsIs,
    Lower,
    Upper,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    All,
    IntCounts,
    LargeCounts,
    /// `use mpi` has these functions twice, for two types of their address (MPI-4.1, 12.2.2).
    Windows,
}

const fn variant(convention: Convention, case: Case, suffix: &'static str, of: Of) -> Symbol {
    Symbol { convention, case, suffix, of }
}

/// All rules, the most common symbol of each convention first. Large-count functions of `mpi_f08`
/// have the symbols of MPICH, of Open MPI and of the standard.
pub const SYMBOLS: [Symbol; 20] = {
    use Case::{AsIs, Lower, Upper};
    use Convention::{C, F08, F08Descriptors, Fortran};
    use Of::{All, IntCounts, LargeCounts, Windows};
    [
        variant(C, AsIs, "", All),
        variant(Fortran, Lower, "_", IntCounts),
        variant(Fortran, Lower, "", IntCounts),
        variant(Fortran, Lower, "__", IntCounts),
        variant(Fortran, Upper, "", IntCounts),
        variant(Fortran, Lower, "_cptr_", Windows),
        variant(Fortran, Lower, "_cptr", Windows),
        variant(Fortran, Lower, "_cptr__", Windows),
        variant(Fortran, Upper, "_CPTR", Windows),
        variant(F08, Lower, "_f08_", IntCounts),
        variant(F08, Lower, "_f08", IntCounts),
        variant(F08Descriptors, Lower, "_f08ts_", IntCounts),
        variant(F08Descriptors, Lower, "_f08ts", IntCounts),
        variant(F08, Lower, "_f08_large_", LargeCounts),
        variant(F08, Lower, "_f08_c_", LargeCounts),
        variant(F08, Lower, "_c_f08_", LargeCounts),
        variant(F08Descriptors, Lower, "_f08ts_large_", LargeCounts),
        variant(F08Descriptors, Lower, "_f08ts_c_", LargeCounts),
        variant(F08Descriptors, Lower, "_c_f08ts_", LargeCounts),
        variant(F08Descriptors, Lower, "_c_f08ts", LargeCounts),
    ]
};

/// Symbol of a function of the OpenMP runtime, derived from the function's C name.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeSymbol {
    /// End of the symbol: Fortran appends an underscore.
    pub suffix: &'static str,
    /// Version of the symbol that a program binds to. The locks of OpenMP 2.5 and 3.0 differ in
    /// size, so that each version has functions of its own; `None` for functions with one version.
    pub version: Option<&'static str>,
}

/// Symbols of the OpenMP runtime: the functions themselves, then locks in C and Fortran.
pub const RUNTIME_SYMBOLS: [RuntimeSymbol; 5] = [
    RuntimeSymbol { suffix: "", version: None },
    RuntimeSymbol { suffix: "", version: Some("OMP_3.0") },
    RuntimeSymbol { suffix: "_", version: Some("OMP_3.0") },
    RuntimeSymbol { suffix: "", version: Some("OMP_1.0") },
    RuntimeSymbol { suffix: "_", version: Some("OMP_1.0") },
];

impl RuntimeSymbol {
    /// Whether a call has this symbol.
    pub fn belongs_to(&self, call: &Call) -> bool {
        let is_lock = call.name.starts_with("omp_");
        call.provider == Provider::Gomp
            && call.name != "OpenMP_idle"
            && is_lock == self.version.is_some()
    }
}

impl Symbol {
    /// Whether a call has this symbol.
    pub fn belongs_to(&self, call: &Call) -> bool {
        let mpi = call.provider.is_mpi();
        match self.of {
            Of::All => !matches!(call.provider, Provider::Gomp | Provider::Ompt),
            Of::IntCounts => mpi && !call.large_count,
            Of::LargeCounts => mpi && call.large_count,
            Of::Windows => matches!(call.name, "MPI_Win_allocate" | "MPI_Win_allocate_shared"),
        }
    }

    /// Whether the wrapper of this symbol may be exported. Libraries in C have functions of their
    /// own with names such as mpi_send, to which an exported wrapper would be preferred (gABI,
    /// chapter 5, Shared Object Dependencies). Few compilers give Fortran's functions such names.
    pub fn is_exported(&self) -> bool {
        !(self.convention == Convention::Fortran
            && self.case == Case::Lower
            && self.suffix.is_empty())
    }

    /// Writes the symbol of a call with its NUL into `room`, without allocating, and returns it.
    pub fn spell<'r>(
        &self,
        call: &Call,
        room: &'r mut [u8; MAX_SYMBOL_BYTES],
    ) -> &'r core::ffi::CStr {
        let name = match self.of {
            Of::LargeCounts => call.name.strip_suffix("_c").unwrap_or(call.name),
            _ => call.name,
        };
        let bytes = name.bytes().chain(self.suffix.bytes());
        // The last byte stays NUL.
        room.fill(0);
        for (place, byte) in room[..MAX_SYMBOL_BYTES - 1].iter_mut().zip(bytes) {
            *place = match self.case {
                Case::AsIs => byte,
                Case::Lower => byte.to_ascii_lowercase(),
                Case::Upper => byte.to_ascii_uppercase(),
            };
        }
        core::ffi::CStr::from_bytes_until_nul(room).unwrap_or(c"")
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CALLS, call, id_of};
    use super::*;

    fn symbols(name: &str) -> Vec<String> {
        let call = call(id_of(name)).unwrap();
        let mut room = [0; MAX_SYMBOL_BYTES];
        SYMBOLS
            .iter()
            .filter(|symbol| symbol.belongs_to(call))
            .map(|symbol| symbol.spell(call, &mut room).to_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn a_function_has_the_symbols_of_all_languages() {
        assert_eq!(
            symbols("MPI_Send"),
            [
                "MPI_Send",
                "mpi_send_",
                "mpi_send",
                "mpi_send__",
                "MPI_SEND",
                "mpi_send_f08_",
                "mpi_send_f08",
                "mpi_send_f08ts_",
                "mpi_send_f08ts",
            ]
        );
        assert_eq!(symbols("MPI_Send_c")[..2], ["MPI_Send_c", "mpi_send_f08_large_"]);
        assert!(symbols("MPI_Win_allocate").contains(&"mpi_win_allocate_cptr_".to_owned()));
        assert_eq!(symbols("poll"), ["poll"]);
    }

    #[test]
    fn names_that_libraries_in_c_have_too_are_not_exported() {
        let call = call(id_of("MPI_Send")).unwrap();
        let mut room = [0; MAX_SYMBOL_BYTES];
        let unexported: Vec<String> = SYMBOLS
            .iter()
            .filter(|symbol| symbol.belongs_to(call) && !symbol.is_exported())
            .map(|symbol| symbol.spell(call, &mut room).to_str().unwrap().to_owned())
            .collect();
        assert_eq!(unexported, ["mpi_send"]);
    }

    #[test]
    fn a_function_of_the_openmp_runtime_is_not_exported() {
        assert!(symbols("GOMP_parallel").is_empty());
        let bindings = |name: &str| -> Vec<_> {
            let call = call(id_of(name)).unwrap();
            RUNTIME_SYMBOLS.iter().filter(|it| it.belongs_to(call)).map(|it| it.suffix).collect()
        };
        assert_eq!(bindings("GOMP_parallel"), [""]);
        assert_eq!(bindings("omp_set_lock"), ["", "_", "", "_"]);
        assert!(bindings("OpenMP_idle").is_empty() && bindings("MPI_Send").is_empty());
    }

    #[test]
    fn no_two_functions_share_a_symbol_and_none_is_cut_off() {
        let mut all: Vec<String> = CALLS.iter().flat_map(|call| symbols(call.name)).collect();
        assert!(all.iter().all(|symbol| symbol.len() + 1 < MAX_SYMBOL_BYTES));
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
