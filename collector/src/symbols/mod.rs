//! Names of functions, from the symbol tables of the modules that the node's processes load.
//! Each file is read once, when its first address needs a name.

mod demangle;
mod table;

pub(crate) use demangle::demangle;
pub(crate) use table::{Table, vdso};

use std::collections::HashMap;
use std::path::PathBuf;

/// A module file.
pub(crate) type ModuleKey = usize;

struct Module {
    path: PathBuf,
    build_id: Vec<u8>,
    table: Option<Option<Table>>,
}

/// The symbol tables of a node.
#[derive(Default)]
pub(crate) struct Symbols {
    modules: Vec<Module>,
    keys: HashMap<(PathBuf, Vec<u8>), ModuleKey>,
}

impl Symbols {
    /// The key of a module; the file is not touched yet.
    pub(crate) fn module(&mut self, path: PathBuf, build_id: Vec<u8>) -> ModuleKey {
        let modules = &mut self.modules;
        *self.keys.entry((path, build_id)).or_insert_with_key(|(path, build_id)| {
            modules.push(Module { path: path.clone(), build_id: build_id.clone(), table: None });
            modules.len() - 1
        })
    }

    /// The demangled name of the function that holds an address of the module's file. Without a
    /// symbol the error is an offset to name it by: where the function begins, if the unwind table
    /// tells, else the address itself.
    pub(crate) fn function(&mut self, module: ModuleKey, address: u64) -> Result<String, u64> {
        let module = &mut self.modules[module];
        let table = module.table.get_or_insert_with(|| Table::read(&module.path, &module.build_id));
        let Some(table) = table else { return Err(address) };
        match table.symbol(address) {
            Some(symbol) => Ok(demangle(symbol)),
            None => Err(table.start(address).unwrap_or(address)),
        }
    }

    /// Memory in use, roughly.
    pub(crate) fn bytes(&self) -> u64 {
        self.modules
            .iter()
            .filter_map(|module| module.table.as_ref()?.as_ref())
            .map(Table::bytes)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;
    use std::os::unix::ffi::OsStrExt;

    #[inline(never)]
    extern "C" fn a_function_of_this_binary(x: u64) -> u64 {
        std::hint::black_box(x) + 1
    }

    /// Module path and load bias of a function, as the loader knows them.
    fn loaded(function: usize) -> (PathBuf, u64) {
        // SAFETY: dladdr only writes to the structure it is given.
        let info = unsafe {
            let mut info: libc::Dl_info = std::mem::zeroed();
            assert_ne!(libc::dladdr(function as *const libc::c_void, &mut info), 0);
            info
        };
        // SAFETY: dladdr succeeded, so the name is a string of the loader's.
        let name = unsafe { CStr::from_ptr(info.dli_fname) };
        let mut path = PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes()));
        if !path.exists() {
            path = std::env::current_exe().unwrap();
        }
        (path, info.dli_fbase as u64)
    }

    fn name_of(function: usize) -> (Result<String, u64>, u64) {
        let (path, bias) = loaded(function);
        let mut symbols = Symbols::default();
        let module = symbols.module(path, Vec::new());
        let address = function as u64 - bias;
        (symbols.function(module, address), address)
    }

    #[test]
    fn functions_of_this_binary_and_of_libc_are_found() {
        let (own, _) = name_of(a_function_of_this_binary as *const () as usize);
        let own = own.unwrap();
        assert!(own.ends_with("tests::a_function_of_this_binary"), "{own}");
        assert!(!own.contains("::h"), "{own} shows its hash");
        let (getpid, _) = name_of(libc::getpid as *const () as usize);
        assert_eq!(getpid.as_deref(), Ok("getpid"));
        let (qsort, _) = name_of(libc::qsort as *const () as usize);
        assert_eq!(qsort.as_deref(), Ok("qsort"));
    }

    #[test]
    fn without_symbols_the_unwind_table_gives_functions_one_name() {
        let (path, bias) = loaded(libc::qsort as *const () as usize);
        let table = Table::read(&path, &[]).unwrap();
        let start = libc::qsort as *const () as u64 - bias;
        assert_eq!(table.start(start), Some(start));
        assert_eq!(table.start(start + 3), Some(start));
        assert_eq!(table.start(0), None);
    }

    #[test]
    fn the_kernels_code_has_names_without_a_file() {
        // SAFETY: getauxval has no preconditions.
        let bias = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
        // SAFETY: C strings; the kernel's library is always loaded.
        let function = unsafe {
            let library =
                libc::dlopen(c"linux-vdso.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
            assert!(!library.is_null());
            libc::dlsym(library, c"__vdso_clock_gettime".as_ptr())
        };
        let mut symbols = Symbols::default();
        let module = symbols.module(PathBuf::from("[vdso]"), Vec::new());
        let name = symbols.function(module, function.addr() as u64 - bias + 1);
        assert_eq!(name.as_deref(), Ok("clock_gettime"));
        let other = symbols.module(PathBuf::from("[vdso]"), vec![0xaa; 20]);
        assert_eq!(symbols.function(other, 5), Err(5));
    }

    #[test]
    fn another_build_and_a_missing_file_give_no_names() {
        let (path, bias) = loaded(libc::getpid as *const () as usize);
        let address = libc::getpid as *const () as u64 - bias;
        let mut symbols = Symbols::default();
        let other = symbols.module(path, vec![0xaa; 20]);
        assert_eq!(symbols.function(other, address), Err(address));
        for path in ["/nonexistent/lib.so", "", "/proc/self/maps", "/dev/zero"] {
            let none = symbols.module(PathBuf::from(path), Vec::new());
            assert_eq!(symbols.function(none, 5), Err(5), "{path}");
        }
    }
}
