//! One module: the functions and lines looked up so far.

mod fill;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_sys::memory_kind::{MemoryKind, count_as};

use super::binary::{self, Binary, DeadSlots};
use super::cache::{self, Known};
use super::debug_file::{self, DebugFile};
use super::function::{Absent, Function, Lines};
use super::headers::Headers;
use super::limit::Limit;
use super::lines::{Debug, Strings};
use super::names::Symbols;
use super::{FunctionPart, Options, Symbol, nesting};
use crate::symbols::{PART, Source, Table, demangle};

/// Maximum number of addresses with stored lines; beyond it all are dropped and looked up again.
const MAX_LINES: usize = 1 << 16;

/// Maximum number of bytes of a closed file that stay in memory until the file is reopened.
const MAX_HELD_BYTES: u64 = 1 << 17;

/// A module.
pub(super) struct Module {
    path: PathBuf,
    build_id: Vec<u8>,
    table: Option<Option<Arc<Table>>>,
    dead_slots: DeadSlots,
    open: Option<Open>,
    /// By the first address of each part.
    parts: BTreeMap<u64, Arc<Function>>,
    lines: HashMap<u64, Lines>,
    /// First addresses of the functions with entries in `lines` for all their instructions.
    filled: HashSet<u64>,
    symbols: Symbols,
    kept: CacheState,
    /// Whether there is debug information; `None` until known. Where there is none, no file is
    /// opened to look for it.
    has_debug: Option<bool>,
    limit: Limit,
}

/// State of the on-disk cache relative to what is known in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CacheState {
    /// The cache has not been read yet.
    Unread,
    /// Nothing is cached: there is no folder, no build-id, or part of the debug information is
    /// missing.
    Not,
    /// The cache holds all that is known.
    Same { debug: String },
    /// Results have been added since the cache was read or written.
    Older { debug: String },
}

/// A module's files, ready to be read.
struct Open {
    binary: Binary,
    debug_file: Option<DebugFile>,
    debug: Option<Option<Debug>>,
}

impl Module {
    pub(super) fn new(path: PathBuf, build_id: Vec<u8>, limit: Limit) -> Self {
        Self {
            path,
            build_id,
            table: None,
            dead_slots: DeadSlots::default(),
            open: None,
            parts: BTreeMap::new(),
            lines: HashMap::new(),
            filled: HashSet::new(),
            symbols: Symbols::default(),
            kept: CacheState::Unread,
            has_debug: None,
            limit,
        }
    }

    /// Returns the function that holds an address, recovered if it is not known yet.
    pub(super) fn function(
        &mut self,
        address: u64,
        options: &Options,
        strings: &mut Strings,
    ) -> Result<Arc<Function>, Absent> {
        self.read_kept(options, strings);
        if let Some(known) = self.known(address) {
            return Ok(known);
        }
        if self.limit.is_over() {
            return Err(Absent::Late);
        }
        let binary = &self.open(options)?.binary;
        let (extent, symbol) = binary.function(address).ok_or(Absent::Function)?;
        if extent.is_part {
            let mut owners = binary.jumps_out_of(&extent.range);
            let symbol = symbol.and_then(|symbol| symbol.name());
            if let Some((owner, _)) = symbol.iter().find_map(|symbol| symbol.split_once(PART)) {
                owners.splice(0..0, binary.named(owner).into_iter().map(|range| range.start));
            }
            for owner in owners.into_iter().take(binary::MAX_OWNERS) {
                self.recover(owner, strings);
                if let Some(known) = self.known(address) {
                    return Ok(known);
                }
            }
        }
        self.recover(address, strings);
        self.known(address).ok_or(Absent::Function)
    }

    /// Returns the symbol of the function that holds an address, and the function's first address.
    pub(super) fn symbol(
        &mut self,
        address: u64,
        options: &Options,
        strings: &mut Strings,
    ) -> Result<Symbol, Absent> {
        self.read_kept(options, strings);
        if let Some(known) = self.known_symbol(address) {
            return Ok(known);
        }
        let binary = &self.open(options)?.binary;
        let (extent, symbol) = binary.function(address).ok_or(Absent::Function)?;
        if extent.is_part && symbol.is_none() {
            // Only the code shows which function the part belongs to.
            let whole = self.function(address, options, strings)?;
            return Ok(Symbol { name: whole.name.clone(), entry: whole.entry });
        }
        let symbol = symbol.and_then(|symbol| symbol.name());
        let whole = symbol.iter().flat_map(|symbol| symbol.split(PART)).next();
        let name = whole.map(|symbol| strings.intern(&demangle(symbol)));
        let symbol = Symbol { name, entry: extent.range.start };
        let alike = binary.alike(address, &extent);
        self.symbols.add(alike, symbol.clone());
        self.note_news();
        Ok(symbol)
    }

    /// Returns the functions with wanted names. A split-off part without its function is left out.
    pub(super) fn functions_named(
        &mut self,
        options: &Options,
        is_wanted: &mut dyn FnMut(&str) -> bool,
    ) -> Vec<FunctionPart> {
        if self.open(options).is_err() {
            return Vec::new();
        }
        let Some(Some(table)) = &self.table else { return Vec::new() };
        let mut entries: HashMap<String, u64> = HashMap::new();
        let mut found = Vec::new();
        for function in table.functions() {
            let Some(symbol) = function.name() else { continue };
            let whole = symbol.split(PART).next().unwrap_or(&symbol);
            if is_wanted(&demangle(whole)) {
                if !function.is_part() {
                    entries.insert(whole.to_owned(), function.range().start);
                }
                found.push((function.range(), whole.to_owned()));
            }
        }
        let part = |(range, name): (_, String)| Some((range, *entries.get(&name)?));
        let parts = found.into_iter().filter_map(part);
        parts.map(|(range, entry)| FunctionPart { range, entry }).collect()
    }

    /// Returns the symbol for an address; `None` if it is not known yet.
    pub(super) fn known_symbol(&self, address: u64) -> Option<Symbol> {
        match self.known(address) {
            Some(known) => Some(Symbol { name: known.name.clone(), entry: known.entry }),
            None => self.symbols.get(address).cloned(),
        }
    }

    /// Returns the function that holds an address; `None` if it is not known yet.
    pub(super) fn known(&self, address: u64) -> Option<Arc<Function>> {
        let (_, function) = self.parts.range(..=address).next_back()?;
        function.contains(address).then(|| function.clone())
    }

    /// Recovers the function at an address; a split-off part is recovered as a function of its own.
    fn recover(&mut self, address: u64, strings: &mut Strings) {
        if self.known(address).is_some() {
            return;
        }
        let Some(open) = &self.open else { return };
        let Some((extent, symbol)) = open.binary.function(address) else { return };
        let name = symbol.and_then(|symbol| symbol.name());
        let name = name.map(|symbol| strings.intern(&demangle(&symbol)));
        let range = extent.range;
        let mut function = Function::recover(&open.binary, name, range.start, &range);
        // The result for an address must not depend on the address that was looked up first.
        let own = function.parts.iter().flat_map(|part| open.binary.without_nested(part));
        function.parts = own.collect();
        self.add(Arc::new(function));
        self.note_news();
    }

    /// Looks up the source positions of a function's loops, unless they are known. `None` if the
    /// deadline passed first.
    pub(super) fn locate(
        &mut self,
        function: &Function,
        options: &Options,
        strings: &mut Strings,
    ) -> Option<()> {
        if function.loops().is_empty() || function.sources().is_some() {
            return Some(());
        }
        let debug = self.debug(function.entry, options, strings);
        let lines = |address| debug.map_or_else(Lines::default, |it| it.lines(address, strings));
        let sources = nesting::locate_loops(function, lines);
        self.in_time()?;
        function.locate(|| sources);
        self.note_news();
        Some(())
    }

    /// Returns `None` if the deadline has interrupted a read: the result of the lookup is
    /// incomplete then.
    fn in_time(&mut self) -> Option<()> {
        if !self.limit.take_interruption() {
            return Some(());
        }
        match self.open.as_mut().map(|open| &mut open.debug) {
            Some(Some(Some(debug))) => debug.note_failure(),
            Some(debug) => *debug = None,
            None => {}
        }
        None
    }

    /// Returns whether the function that holds an address is known, and its lines are known or
    /// quick to find.
    pub(super) fn is_at_hand(&self, address: u64) -> bool {
        let debug = self.open.as_ref().and_then(|open| open.debug.as_ref()?.as_ref());
        self.known(address).is_some()
            && (self.has_debug == Some(false)
                || self.lines.contains_key(&address)
                || debug.is_some_and(|debug| debug.is_at_hand(address)))
    }

    /// Returns the unit of the debug information that describes an address; `None` if the lines of
    /// the address are known, or the unit is not.
    pub(super) fn unit(
        &mut self,
        address: u64,
        options: &Options,
        strings: &mut Strings,
    ) -> Option<u64> {
        self.read_kept(options, strings);
        if self.lines.contains_key(&address) {
            return None;
        }
        let unit = self.debug(address, options, strings).and_then(|debug| debug.unit(address));
        self.in_time()?;
        unit
    }

    /// Adds a function recovered elsewhere, unless one is known at its entry.
    pub(super) fn give(&mut self, function: Arc<Function>) {
        if self.known(function.entry).is_none() {
            self.add(function);
        }
    }

    fn add(&mut self, function: Arc<Function>) {
        for part in &function.parts {
            self.parts.insert(part.start, function.clone());
        }
    }

    /// Reads the results of other jobs from the on-disk cache, once.
    fn read_kept(&mut self, options: &Options, strings: &mut Strings) {
        if self.kept != CacheState::Unread {
            return;
        }
        self.kept = CacheState::Not;
        let Some(folder) = options.cache.as_ref().filter(|_| !self.build_id.is_empty()) else {
            return;
        };
        let Some(source) = Source::open(&self.path) else { return };
        let cache = source.cache();
        let headers = Headers::parse(&cache);
        let debug_file = headers
            .as_ref()
            .and_then(|it| debug_file::find(it, &self.path, &source, &options.debug_folders));
        self.has_debug = Some(debug_file.is_some());
        // A stripped program has the build-id of the whole one, but not its names.
        let has_symbols = headers.is_some_and(|it| it.has(".symtab"));
        let debug = match debug_file {
            Some(file) => file.identity(),
            None => String::from(if has_symbols { "symbols" } else { "" }),
        };
        let known = cache::read(&cache::path(folder, &self.build_id), &debug, strings);
        known.functions.into_iter().for_each(|function| self.add(function));
        (self.lines, self.symbols) = (known.lines, known.symbols);
        self.kept = CacheState::Same { debug };
    }

    /// Notes that the on-disk cache is behind what is known in memory.
    fn note_news(&mut self) {
        let opened = self.open.as_ref().and_then(|open| open.debug.as_ref()?.as_ref());
        if opened.is_some_and(Debug::is_partial) {
            self.kept = CacheState::Not;
        } else if let CacheState::Same { debug } = &mut self.kept {
            self.kept = CacheState::Older { debug: std::mem::take(debug) };
        }
    }

    /// Returns whether there are results that the on-disk cache lacks.
    pub(super) fn has_news(&self) -> bool {
        matches!(self.kept, CacheState::Older { .. })
    }

    /// Writes new results to the on-disk cache; returns whether anything was written.
    pub(super) fn save(&mut self, options: &Options) -> bool {
        let (CacheState::Older { debug }, Some(folder)) = (&self.kept, &options.cache) else {
            return false;
        };
        let known = Known {
            functions: self.functions().cloned().collect(),
            lines: std::mem::take(&mut self.lines),
            symbols: std::mem::take(&mut self.symbols),
        };
        let path = cache::path(folder, &self.build_id);
        let written = cache::write(&path, debug, &known).is_ok();
        (self.lines, self.symbols) = (known.lines, known.symbols);
        // A folder that cannot be written to is not tried again.
        self.kept =
            if written { CacheState::Same { debug: debug.clone() } } else { CacheState::Not };
        written
    }

    /// Returns each function once.
    fn functions(&self) -> impl Iterator<Item = &Arc<Function>> {
        let is_first = |(start, function): &(&u64, &Arc<Function>)| {
            function.parts.first().is_some_and(|part| part.start == **start)
        };
        self.parts.iter().filter(is_first).map(|(_, function)| function)
    }

    /// Returns the source position of an address; `None` if the deadline passed first.
    pub(super) fn lines(
        &mut self,
        address: u64,
        options: &Options,
        strings: &mut Strings,
    ) -> Option<Lines> {
        self.read_kept(options, strings);
        if let Some(known) = self.lines.get(&address) {
            return Some(known.clone());
        }
        let debug = self.debug(address, options, strings);
        let lines = debug.map(|debug| debug.lines(address, strings));
        self.in_time()?;
        let Some(lines) = lines else {
            let is_late = self.has_debug != Some(false) && self.limit.is_over();
            return (!is_late).then(Lines::default);
        };
        if self.lines.len() >= MAX_LINES {
            self.lines.clear();
            self.filled.clear();
        }
        self.lines.insert(address, lines.clone());
        self.note_news();
        Some(lines)
    }

    /// Returns the debug information, opened for a lookup of an address.
    fn debug(&mut self, address: u64, options: &Options, strings: &mut Strings) -> Option<&Debug> {
        if self.has_debug == Some(false) {
            return None;
        }
        self.open(options).ok()?;
        let debug = self.open.as_ref()?.debug.iter().flatten().next();
        if debug.is_some_and(|debug| debug.is_spent_for(address)) {
            self.fill(strings);
            self.open.as_mut()?.debug = None;
        }
        let open = self.open.as_mut()?;
        if open.debug.is_none() && self.limit.interrupts_now() {
            return None;
        }
        let file = open.debug_file.as_ref();
        let folders = &options.debug_folders;
        open.debug
            .get_or_insert_with(|| {
                let open = || Debug::open(&self.path, file?, folders, &self.limit);
                count_as(MemoryKind::DebugInfo, open)
            })
            .as_ref()
    }

    /// Opens the module's file, if it is the build that was loaded.
    fn open(&mut self, options: &Options) -> Result<&Open, Absent> {
        if self.open.is_none() {
            if self.limit.is_over() {
                return Err(Absent::Late);
            }
            let opened = self.try_open(options);
            if opened.is_none() && self.limit.take_interruption() {
                self.table = None;
                return Err(Absent::Late);
            }
            self.open = opened;
        }
        self.open.as_ref().ok_or(Absent::Module)
    }

    fn try_open(&mut self, options: &Options) -> Option<Open> {
        if matches!(self.table, Some(None)) {
            return None; // it could not be read before
        }
        let source = Source::open(&self.path)?;
        let cache = source.cache();
        let headers = Headers::parse(&cache);
        let facts = headers.as_ref().and_then(binary::facts_of);
        let fits = facts.as_ref().is_some_and(|facts| {
            facts.build_id.is_empty() || self.build_id.is_empty() || facts.build_id == self.build_id
        });
        let (Some(headers), Some(facts), true) = (&headers, facts, fits) else {
            self.table = Some(None);
            return None;
        };
        let debug_file = debug_file::find(headers, &self.path, &source, &options.debug_folders);
        self.has_debug = Some(debug_file.is_some());
        let is_over = || self.limit.interrupts_now();
        let table = self.table.get_or_insert_with(|| {
            let from = match &debug_file {
                Some(file) if !facts.has_symbols => {
                    Table::read_until(&file.source, &facts.build_id, &is_over)
                }
                _ => None,
            };
            from.or_else(|| Table::read_until(&source, &self.build_id, &is_over)).map(Arc::new)
        });
        let dead_slots = self.dead_slots.clone();
        let binary = Binary::new(headers, source.clone(), table.clone()?, dead_slots);
        Some(Open { binary, debug_file, debug: None })
    }

    /// Returns whether any of the module's files is open.
    pub(super) fn is_open(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.sources().any(|source| source.is_open()))
    }

    /// Closes the module's files and drops the data read from them. The parsed file, without its
    /// debug information, is kept if it holds at most [`MAX_HELD_BYTES`]: parsing takes longer than
    /// most lookups.
    pub(super) fn release(&mut self, strings: &mut Strings) {
        self.fill(strings);
        let kept = self.open.take().filter(|it| it.binary.source.held() <= MAX_HELD_BYTES);
        self.open = kept.map(|open| Open { debug: None, ..open });
        self.open.iter().flat_map(Open::sources).for_each(|source| source.close());
    }

    /// Returns the approximate memory in use, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let functions: usize = self.functions().map(|function| function.bytes()).sum();
        let table = self.table.as_ref().and_then(Option::as_ref).map_or(0, |table| table.bytes());
        let lines = self.lines.capacity() * size_of::<(u64, Lines)>();
        functions + table as usize + lines + self.symbols.bytes()
    }
}

impl Open {
    fn sources(&self) -> impl Iterator<Item = &Arc<Source>> {
        std::iter::once(&self.binary.source).chain(self.debug_file.iter().map(|file| &file.source))
    }
}
