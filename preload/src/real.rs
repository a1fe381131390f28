//! The real functions behind the hooks, which the application would call without Plimsoll.
//!
//! The functions are resolved in the constructor, since a dlsym inside a hook may deadlock on the
//! loader's lock. A function that is not loaded then (of an MPI opened by dlopen) is resolved at
//! its first call.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_calls::{
    CALLS, Call, CallId, Convention, MAX_SYMBOL_BYTES, Provider, SYMBOLS, Symbol, id_of,
};
use plimsoll_comm::mpi::Definitions;

/// Addresses of the definitions of the wrapped calls, by convention and call id; 0 while unknown.
pub static CALL_DEFINITIONS: [[AtomicUsize; CALLS.len() + 1]; Convention::COUNT] =
    [const { [const { AtomicUsize::new(0) }; CALLS.len() + 1] }; Convention::COUNT];

/// Calls probed to find out whether a library with MPI's functions of a symbol variant is loaded.
const PROBES: [CallId; 3] = [id_of("MPI_Init"), id_of("MPI_Send"), id_of("MPI_Send_c")];

/// Symbols with several versions, for which dlsym would return the oldest: the condition variables
/// before glibc 2.3.2 had another layout.
const VERSIONS: [(&str, &CStr); 2] =
    [("pthread_cond_wait", c"GLIBC_2.3.2"), ("pthread_cond_timedwait", c"GLIBC_2.3.2")];

/// Resolves the functions that are loaded now. For each symbol variant of MPI's functions one or
/// two are tried first: most programs use one symbol variant at most, and looking up a symbol that
/// does not exist takes longest.
pub fn resolve_all() {
    for function in functions() {
        function.get();
    }
    let exported = SYMBOLS.iter().enumerate().filter(|(_, symbol)| symbol.is_exported());
    for (symbol_variant, symbol) in exported {
        let probed = PROBES.iter().map(|id| &CALLS[usize::from(*id) - 1]);
        let loaded = probed
            .filter(|call| symbol.belongs_to(call))
            .any(|call| resolve_call(call, symbol, std::ptr::null()).is_some());
        for (at, call) in CALLS.iter().enumerate() {
            if (loaded || symbol_variant == 0 && call.provider == Provider::Libc)
                && symbol.belongs_to(call)
            {
                let place = &CALL_DEFINITIONS[symbol.convention as usize][at + 1];
                if place.load(Ordering::Relaxed) == 0
                    && let Some(definition) = resolve_call(call, symbol, std::ptr::null())
                {
                    place.store(definition as usize, Ordering::Relaxed);
                }
            }
        }
    }
}

/// Returns the definition of a call. Allocates nothing for functions of the C library: their hooks
/// may be called before Plimsoll's constructor, from another library's hook of mmap.
fn resolve_call(call: &Call, symbol: &Symbol, caller: *const c_void) -> Option<*const c_void> {
    let mut room = [0; MAX_SYMBOL_BYTES];
    let name = symbol.spell(call, &mut room);
    if call.provider.is_mpi() && !caller.is_null() {
        return Definitions::default().next(name, caller);
    }
    let version =
        VERSIONS.iter().find(|(versioned, _)| *versioned == call.name).map(|(_, version)| *version);
    resolve(name, version)
}

/// Returns the next definition of a symbol after Plimsoll's.
pub fn resolve(symbol: &CStr, version: Option<&CStr>) -> Option<*const c_void> {
    // SAFETY: C strings.
    let pointer = unsafe {
        let versioned = version.map_or(std::ptr::null_mut(), |version| {
            libc::dlvsym(libc::RTLD_NEXT, symbol.as_ptr(), version.as_ptr())
        });
        if versioned.is_null() { libc::dlsym(libc::RTLD_NEXT, symbol.as_ptr()) } else { versioned }
    };
    (!pointer.is_null()).then_some(pointer.cast_const())
}

/// Returns the definition of a wrapped call, called by this symbol variant; `caller` is an address
/// in the code that calls it.
#[inline]
pub fn call(id: CallId, symbol_variant: usize, caller: *const c_void) -> *const c_void {
    let convention =
        if symbol_variant == 0 { Convention::C } else { SYMBOLS[symbol_variant].convention };
    let place = &CALL_DEFINITIONS[convention as usize][usize::from(id)];
    match place.load(Ordering::Relaxed) {
        0 => find(id, symbol_variant, caller).unwrap_or(missing as *const c_void),
        known => known as *const c_void,
    }
}

/// Looks up a function that was not loaded when the constructor ran.
#[cold]
pub fn find(id: CallId, symbol_variant: usize, caller: *const c_void) -> Option<*const c_void> {
    let (call, symbol) = (&CALLS[usize::from(id) - 1], &SYMBOLS[symbol_variant]);
    let place = &CALL_DEFINITIONS[symbol.convention as usize][usize::from(id)];
    match place.load(Ordering::Relaxed) {
        0 => {
            let definition = resolve_call(call, symbol, caller)?;
            place.store(definition as usize, Ordering::Relaxed);
            Some(definition)
        }
        known => Some(known as *const c_void),
    }
}

/// Replaces a function that no loaded library defines, although the program asked for it by name.
/// Fails as MPI does (MPI_ERR_OTHER is not 0 in any ABI).
extern "C" fn missing() -> libc::c_int {
    crate::log::warn("the program calls an MPI function that no loaded library provides");
    15
}

/// A function of the C library behind a hook of Plimsoll, resolved in the constructor.
pub struct Function {
    symbol: &'static CStr,
    definition: AtomicUsize,
}

impl Function {
    /// Creates the entry of the function of this name, without resolving it.
    pub const fn named(symbol: &'static CStr) -> Self {
        Self { symbol, definition: AtomicUsize::new(0) }
    }

    /// Returns the function's definition, resolving it at first use; null if there is none.
    pub fn get(&self) -> *const c_void {
        let known = self.definition.load(Ordering::Relaxed);
        if known != 0 {
            return known as *const c_void;
        }
        let definition = resolve(self.symbol, None).unwrap_or(std::ptr::null());
        self.definition.store(definition as usize, Ordering::Relaxed);
        definition
    }
}

unsafe extern "C" {
    /// Start and end of the section in which [`real!`](crate::real) lists its functions, as the
    /// linker names them.
    static __start_plimsoll_functions: u8;
    static __stop_plimsoll_functions: u8;
}

/// Returns all functions that `real!` defines. A lookup at their first call would use a KiB of the
/// caller's stack.
fn functions() -> &'static [&'static Function] {
    // SAFETY: the linker puts the section's entries, which are references, between the two symbols.
    unsafe {
        let first = (&raw const __start_plimsoll_functions).cast::<&'static Function>();
        let end = (&raw const __stop_plimsoll_functions).cast::<&'static Function>();
        std::slice::from_raw_parts(first, end.offset_from_unsigned(first))
    }
}

/// Defines the C library's own version of a function: `real!(name: fn(A) -> R)` makes
/// `name(a) -> R`, which calls it.
#[macro_export]
macro_rules! real {
    ($(#[$meta:meta])* $name:ident($($argument:ident: $type:ty),*) -> $result:ty) => {
        $(#[$meta])*
        ///
        /// # Safety
        /// As the C library's function of this name.
        pub unsafe fn $name($($argument: $type),*) -> $result {
            static FUNCTION: $crate::real::Function = {
                const NAME: &[u8] = concat!(stringify!($name), "\0").as_bytes();
                match ::std::ffi::CStr::from_bytes_with_nul(NAME) {
                    Ok(name) => $crate::real::Function::named(name),
                    Err(_) => panic!("a symbol's name holds no NUL"),
                }
            };
            #[used]
            #[unsafe(link_section = "plimsoll_functions")]
            static LISTED: &$crate::real::Function = &FUNCTION;
            let pointer = FUNCTION.get();
            // SAFETY: the C library's function of this name has this type; the caller fulfils its
            // contract.
            unsafe {
                let function: unsafe extern "C-unwind" fn($($type),*) -> $result =
                    ::std::mem::transmute(pointer);
                function($($argument),*)
            }
        }
    };
}
