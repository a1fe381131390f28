//! Functions that do not return, by name: the code after a call to them belongs elsewhere.

/// Names from C and the language runtimes, without leading underscores.
const NAMES: [&str; 31] = [
    "abort",
    "assert_fail",
    "assert",
    "assert_perror_fail",
    "assert_rtn",
    "chk_fail",
    "cxa_bad_cast",
    "cxa_bad_typeid",
    "cxa_call_terminate",
    "cxa_call_unexpected",
    "cxa_pure_virtual",
    "cxa_rethrow",
    "cxa_throw",
    "cxa_throw_bad_array_new_length",
    "exit",
    "Exit",
    "fortify_fail",
    "gfortran_error_stop_numeric",
    "gfortran_error_stop_string",
    "gfortran_os_error",
    "gfortran_os_error_at",
    "gfortran_runtime_error",
    "gfortran_runtime_error_at",
    "gfortran_stop_numeric",
    "gfortran_stop_string",
    "libc_fatal",
    "longjmp",
    "longjmp_chk",
    "siglongjmp",
    "stack_chk_fail",
    "Unwind_Resume",
];

/// Other names, compared exactly.
const EXACT: [&str; 8] = [
    "_Unwind_Resume_or_Rethrow",
    "_ZSt9terminatev",
    "_ZSt10unexpectedv",
    "__clang_call_terminate",
    "pthread_exit",
    "quick_exit",
    "rust_begin_unwind",
    "rust_panic",
];

/// Parts of mangled names: the functions with which Rust panics.
const PIECES: [&str; 9] = [
    "3std9panicking11begin_panic",
    "3std9panicking13begin_panic_handler",
    "3std9panicking20rust_panic_with_hook",
    "3std7process4exit",
    "3std7process5abort",
    "13unwrap_failed",
    "13expect_failed",
    "18handle_alloc_error",
    "17capacity_overflow",
];

/// Begins of mangled names of the libraries of Rust with functions such as
/// `core::slice::index::slice_start_index_len_fail`.
const WITH_FAILURES: [&str; 3] = ["_ZN4core", "_ZN5alloc", "_ZN3std"];

/// Returns whether a function of this name (as in the symbol table) never returns. Called for all
/// names of a library; most of them are mangled and do not match.
pub(crate) fn never_returns(symbol: &str) -> bool {
    let name = symbol.split('@').next().unwrap_or(symbol);
    if name.starts_with("_Z") || name.starts_with("_R") {
        return EXACT.contains(&name)
            || is_libstdcxx_throw(name)
            || is_rust(name)
                && (is_core_panic(name)
                    || PIECES.iter().any(|piece| name.contains(piece))
                    || WITH_FAILURES.iter().any(|begin| name.starts_with(begin))
                        && name.contains("_fail17h"));
    }
    let plain = name.trim_start_matches('_');
    NAMES.contains(&plain) || EXACT.contains(&name)
}

/// Returns whether a mangled name may be from Rust: the older form, shared with C++, ends with a
/// hash, or with a compiler's suffix after a dot.
fn is_rust(name: &str) -> bool {
    let has_hash = || name.as_bytes().rchunks(20).next().is_some_and(|end| end.starts_with(b"17h"));
    name.starts_with("_R") || name.starts_with("_ZN") && (has_hash() || name.contains('.'))
}

/// Returns whether the name is in `core::panicking`, such as `core::panicking::panic_fmt`.
fn is_core_panic(name: &str) -> bool {
    name.split("4core9panicking").skip(1).any(|rest| {
        let function = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
        ["panic", "assert_failed", "unreachable"].iter().any(|start| function.starts_with(start))
    })
}

/// Returns whether the name is one like `std::__throw_length_error(char const*)`:
/// `_ZSt20__throw_length_errorPKc`.
fn is_libstdcxx_throw(name: &str) -> bool {
    name.strip_prefix("_ZSt").is_some_and(|rest| {
        rest.trim_start_matches(|digit: char| digit.is_ascii_digit()).starts_with("__throw_")
    })
}

#[cfg(test)]
mod tests {
    use super::never_returns;

    #[test]
    fn functions_that_end_a_program_never_return() {
        for name in [
            "abort",
            "exit@@GLIBC_2.2.5",
            "_exit",
            "__assert_fail",
            "__stack_chk_fail",
            "_ZSt20__throw_length_errorPKc",
            "_Unwind_Resume",
            "_gfortran_stop_string",
            "_ZN4core9panicking18panic_bounds_check17h0123456789abcdefE",
            "_ZN4core9panicking9panic_fmt17h0123456789abcdefE",
            "_ZN4core6option13unwrap_failed17h0123456789abcdefE",
            "_ZN3std9panicking11begin_panic17h0123456789abcdefE.llvm.123",
            "_ZN4core5slice5index26slice_start_index_len_fail17h0123456789abcdefE",
            "_RNvNtCs1_3std7process4exit",
            "_ZSt9terminatev",
        ] {
            assert!(never_returns(name), "{name}");
        }
        for name in [
            "main",
            "exit_group_of_mine",
            "atexit",
            "aborted",
            "panic",
            "",
            "_",
            "_ZN3abcC1Ev",
            "_ZN4demo8may_fail17h0123456789abcdefE",
        ] {
            assert!(!never_returns(name), "{name}");
        }
    }
}
