//! Demangling of C++, Rust and Fortran names, without parameters and return types.

use cpp_demangle::DemangleOptions;

/// Suffixes that compilers give to parts and copies of a function.
const SUFFIXES: [&str; 7] =
    [".constprop.", ".isra.", ".part.", ".cold", ".lto_priv.", ".llvm.", ".localalias"];

/// Returns the demangled name of a symbol.
pub(crate) fn demangle(symbol: &str) -> String {
    let name = plain(symbol);
    if let Some((module, function)) = fortran(name) {
        return format!("{module}::{function}");
    }
    if (name.starts_with("_R") || is_legacy_rust(name))
        && let Ok(rust) = rustc_demangle::try_demangle(name)
    {
        return format!("{rust:#}");
    }
    // The return type of a template may be beyond the demangler, such as those of libstdc++ with
    // enable_if: what precedes it is the name.
    if name.starts_with("_Z")
        && let Ok((cpp, _)) = cpp_demangle::Symbol::with_tail(name.as_bytes())
        && let Ok(text) =
            cpp.demangle_with_options(&DemangleOptions::new().no_params().no_return_type())
    {
        return text;
    }
    name.to_owned()
}

/// Returns a symbol without its version and the compiler's suffixes.
fn plain(symbol: &str) -> &str {
    let name = match symbol.find('@') {
        Some(at) if at > 0 => &symbol[..at],
        _ => symbol,
    };
    let end = SUFFIXES.iter().filter_map(|suffix| name.find(suffix)).min().unwrap_or(name.len());
    if end == 0 { name } else { &name[..end] }
}

/// Splits a name of gfortran, `__module_MOD_function`, into module and function.
fn fortran(name: &str) -> Option<(&str, &str)> {
    let (module, function) = name.strip_prefix("__")?.split_once("_MOD_")?;
    (!module.is_empty() && !function.is_empty()).then_some((module, function))
}

/// Returns whether a name is in Rust's old scheme: C++'s with a hash as last component,
/// `17h0123456789abcdefE`.
fn is_legacy_rust(name: &str) -> bool {
    name.starts_with("_ZN")
        && name.strip_suffix('E').is_some_and(|rest| {
            rest.len() > 19
                && rest.is_char_boundary(rest.len() - 19)
                && rest[rest.len() - 19..].starts_with("17h")
                && rest[rest.len() - 16..].bytes().all(|byte| byte.is_ascii_hexdigit())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_user_s() {
        for (symbol, name) in [
            ("main", "main"),
            ("write@@GLIBC_2.2.5", "write"),
            ("_ZN9LAMMPS_NS4PairC2EPNS_6LAMMPSE", "LAMMPS_NS::Pair::Pair"),
            ("_Z3addIiET_S0_S0_", "add<int>"),
            ("_ZN3foo3barEv", "foo::bar"),
            (
                "_ZSt4swapISt9_Any_dataENSt9enable_ifIXsrSt6__and_IJSt6__not_ISt15__is_tuple_like\
                 IT_EESt21is_move_constructibleIS5_ESt18is_move_assignableIS5_EEE5valueEvE4type\
                 ERS5_SF_",
                "std::swap<std::_Any_data>",
            ),
            ("_ZN3foo3barEv.constprop.0.isra.1", "foo::bar"),
            ("solve.part.0.cold", "solve"),
            ("__grid_MOD_advance", "grid::advance"),
            ("MAIN__", "MAIN__"),
            ("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"),
            ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
            ("_Znot_mangled_at_all", "_Znot_mangled_at_all"),
            (".cold", ".cold"),
            ("", ""),
        ] {
            assert_eq!(demangle(symbol), name, "{symbol}");
        }
    }
}
