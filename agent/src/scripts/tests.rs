//! An interpreter's structures, laid out in memory as CPython does.

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};

use super::layouts::{BYTES, BYTES_LENGTH, STRING_KIND, STRING_LENGTH};
use super::*;
use plimsoll_wire::segment::{Address, script_place};

thread_local! {
    static STATE: Cell<u64> = const { Cell::new(0) };
    static ENDS: Cell<bool> = const { Cell::new(false) };
}

unsafe extern "C" fn thread_state() -> u64 {
    STATE.get()
}

unsafe extern "C" fn is_finalizing() -> c_int {
    ENDS.get().into()
}

/// A table of lines: each entry a head with kind and length, and what the kind has behind it.
/// Source: Objects/locations.md of CPython 3.11.
const LINES_TABLE: [u8; 15] = [
    // Four units in the first line, with columns in one byte; two in the next line, with columns in
    // two.
    0x80 | 3 << 3 | 3,
    0x11,
    0x80 | 11 << 3 | 1,
    5,
    9,
    // Two units two lines before that, without columns.
    0x80 | 13 << 3 | 1,
    5,
    // One unit forty lines behind that, with its last line and columns.
    0x80 | 14 << 3,
    64 | 16,
    1,
    0,
    64 | 1,
    2,
    3,
    // Eight units without a line.
    0x80 | 15 << 3 | 7,
];
/// Lines of the units, from the first line of the function on.
const LINES: [Option<i64>; 10] =
    [Some(0), Some(0), Some(0), Some(0), Some(1), Some(1), Some(-1), Some(-1), Some(39), None];

const LAYOUTS: [&Layout; 3] = [&CPYTHON_3_11, &CPYTHON_3_12, &CPYTHON_3_13];

/// Memory of a process with an interpreter.
struct Subject {
    layout: &'static Layout,
    interpreter: Interpreter,
    functions: &'static [ScriptFunction],
    table: Vec<Address>,
    used: AtomicU32,
    memory: Vec<Box<[u64]>>,
}

impl Subject {
    fn new(layout: &'static Layout) -> Self {
        let functions: &[ScriptFunction] = Box::leak(
            // SAFETY: zeros are valid.
            (0..8).map(|_| unsafe { core::mem::zeroed() }).collect(),
        );
        let count = Box::leak(Box::new(AtomicU32::new(0)));
        let code_objects = CodeObjects::new(layout, functions, count).unwrap();
        let address = || Address {
            value: AtomicU64::new(0),
            module: AtomicU32::new(0),
            flags: AtomicU32::new(0),
        };
        Self {
            layout,
            interpreter: Interpreter { thread_state, is_finalizing, layout, code_objects },
            functions,
            table: (0..64).map(|_| address()).collect(),
            used: AtomicU32::new(1),
            memory: Vec::new(),
        }
    }

    /// Returns the address of new memory with these words at these offsets.
    fn structure(&mut self, words: &[(u64, u64)]) -> u64 {
        let mut memory = vec![0; 32].into_boxed_slice();
        for (at, word) in words {
            memory[*at as usize / 8] |= word << (8 * (at % 8));
        }
        let address = memory.as_ptr() as u64;
        self.memory.push(memory);
        address
    }

    fn text(&mut self, text: &str) -> u64 {
        let (is_ascii, characters) = (text.is_ascii(), text.chars().count() as u64);
        let (width, begin) = if is_ascii { (1, self.layout.ascii) } else { (2, self.layout.wide) };
        let kind = width << 2 | 1 << 5 | u64::from(is_ascii) << 6;
        let mut words = vec![(STRING_LENGTH, characters), (STRING_KIND, kind)];
        let places = (0..).map(|index| begin + index * width);
        words.extend(places.zip(text.chars().map(u64::from)));
        self.structure(&words)
    }

    /// Returns a code object; its instructions lie in the lines of [`LINES`].
    fn code(&mut self, name: &str, line: u64) -> u64 {
        let (name, file) = (self.text(name), self.text("/home/ada/model.py"));
        let bytes = (BYTES..).zip(LINES_TABLE.iter().map(|byte| u64::from(*byte)));
        let length = (BYTES_LENGTH, LINES_TABLE.len() as u64);
        let lines = self.structure(&[length].into_iter().chain(bytes).collect::<Vec<_>>());
        let layout = self.layout;
        self.structure(&[
            (layout.code_name, name),
            (layout.code_file, file),
            (layout.code_line, line),
            (layout.code_lines, lines),
        ])
    }

    /// Returns the innermost frame of a run of the functions with these code objects, outermost
    /// first, and the frame that the next run continues from. Each executes its first instruction.
    fn run(&mut self, codes: &[u64], caller: u64) -> (u64, u64) {
        let layout = self.layout;
        let mut frame = caller;
        if let RunEnd::Before(at, value) = layout.end {
            frame = self.structure(&[(layout.frame_caller, caller), (at, value.into())]);
        }
        let entry = frame;
        for (index, code) in codes.iter().enumerate() {
            let mut words = vec![
                (layout.frame_code, *code),
                (layout.frame_caller, frame),
                (layout.frame_instruction, *code + layout.code_begin),
            ];
            if let (0, RunEnd::With(at)) = (index, layout.end) {
                words.push((at, 1));
            }
            frame = self.structure(&words);
        }
        (frame, entry)
    }

    /// Makes two evaluation loops the calling thread's, one with each run, and returns the places
    /// of both on the stack, outermost first.
    fn execute(&mut self, outer: &[u64], inner: &[u64]) -> [u64; 2] {
        let (outer_frame, outer_entry) = self.run(outer, 0);
        let (inner_frame, inner_entry) = self.run(inner, outer_frame);
        let (places, current) = match self.layout.evaluation {
            Evaluation::EntryFrame => ([outer_entry, inner_entry], inner_frame),
            Evaluation::Structure { frame, outer } => {
                let first = self.structure(&[(frame, outer_frame)]);
                let second = self.structure(&[(frame, inner_frame), (outer, first)]);
                ([first, second], second)
            }
        };
        let state = self.structure(&[(self.layout.state, current)]);
        STATE.set(state);
        places
    }

    /// Returns the frames of the next run, innermost first.
    fn take(&self, runs: &mut Runs) -> Vec<Frame> {
        let published = Published { table: &self.table, used: &self.used };
        let mut found = Vec::new();
        runs.take(&self.interpreter, &published, 7, |frame| {
            found.push(frame);
            true
        });
        found
    }

    /// Returns the number of a frame's function, and its current line.
    fn place(&self, frame: &Frame) -> (usize, u32) {
        let address = &self.table[frame.id as usize];
        assert_eq!(address.module.load(Ordering::Relaxed), 7);
        script_place(address.value.load(Ordering::Relaxed)).unwrap()
    }

    /// Returns the name and the first line of a frame's function.
    fn name(&self, frame: &Frame) -> (String, u32) {
        let function = &self.functions[self.place(frame).0];
        let text = |room: &[core::sync::atomic::AtomicU8], bytes: &AtomicU32| {
            let bytes = &room[..bytes.load(Ordering::Relaxed) as usize];
            String::from_utf8(bytes.iter().map(|byte| byte.load(Ordering::Relaxed)).collect())
        };
        assert_eq!(text(&function.file, &function.file_bytes).unwrap(), "/home/ada/model.py");
        let name = text(&function.name, &function.name_bytes).unwrap();
        (name, function.line.load(Ordering::Relaxed))
    }
}

#[test]
fn each_evaluation_loop_executes_a_run_of_functions() {
    for layout in LAYOUTS {
        let mut subject = Subject::new(layout);
        let [module, solve, heat] = [("<module>", 1), ("Solver.solve", 20), ("wärme", 7)]
            .map(|(name, line)| subject.code(name, line));
        let [outer, inner] = subject.execute(&[module, solve], &[solve, heat]);
        let mut runs = subject.interpreter.runs();
        assert!(runs.is_next_in(inner, inner + 8) && !runs.is_next_in(outer, outer + 8));
        let first = subject.take(&mut runs);
        assert!(runs.is_next_in(outer, outer + 8));
        let second = subject.take(&mut runs);
        assert!(!runs.is_next_in(1, u64::MAX), "there is no third run");
        let names = |frames: &[Frame]| -> Vec<(String, u32)> {
            frames.iter().map(|frame| subject.name(frame)).collect()
        };
        let named = |name: &str, line| (name.to_owned(), line);
        assert_eq!(names(&first), [named("wärme", 7), named("Solver.solve", 20)]);
        assert_eq!(names(&second), [named("Solver.solve", 20), named("<module>", 1)]);
        // One function has one id, and its two calls are distinct.
        assert_eq!(first[1].id, second[0].id);
        assert_ne!(first[1].return_slot, second[0].return_slot);
        assert!(first.iter().all(Frame::is_of_script));
    }
}

#[test]
fn a_path_stands_while_the_same_functions_are_executed() {
    for layout in LAYOUTS {
        let mut subject = Subject::new(layout);
        let [module, solve, heat] = ["<module>", "solve", "heat"].map(|name| subject.code(name, 1));
        subject.execute(&[module], &[solve]);
        let mut runs = subject.interpreter.runs();
        let path = [subject.take(&mut runs), subject.take(&mut runs)].concat();
        // SAFETY: the structures are complete.
        let executes = |subject: &Subject| unsafe { subject.interpreter.executes(path.iter()) };
        assert!(executes(&subject));
        ENDS.set(true);
        assert!(!executes(&subject), "structures are freed while the interpreter ends");
        ENDS.set(false);
        // Another function, or another place of the same, in the frame.
        let frame = path[0].return_slot as *mut u64;
        let place = frame.wrapping_byte_add(layout.frame_instruction as usize);
        for (instruction, stands) in [(heat, false), (solve + 2, false), (solve, true)] {
            // SAFETY: the frame is memory of the subject.
            unsafe { place.write(instruction + layout.code_begin) };
            assert_eq!(executes(&subject), stands);
        }
        // The function calls another one.
        subject.execute(&[module, solve], &[heat]);
        assert!(!executes(&subject));
        STATE.set(0);
        assert!(!executes(&subject), "the thread is none of the interpreter's");
    }
}

#[test]
fn another_function_in_the_memory_of_a_freed_one_has_its_own_name() {
    let mut subject = Subject::new(&CPYTHON_3_12);
    let [first, other] = ["first", "other"].map(|name| subject.code(name, 3));
    subject.execute(&[first], &[first]);
    let mut runs = subject.interpreter.runs();
    assert_eq!(subject.name(&subject.take(&mut runs)[0]).0, "first");
    let name_of = |code: u64| (code + CPYTHON_3_12.code_name) as *mut u64;
    // SAFETY: code objects are memory of the subject.
    unsafe { *name_of(first) = *name_of(other) };
    assert_eq!(subject.name(&subject.take(&mut runs)[0]).0, "other");
}

#[test]
fn the_current_line_of_a_function_is_known() {
    for layout in LAYOUTS {
        let mut subject = Subject::new(layout);
        let solve = subject.code("solve", 100);
        for (unit, line) in (0..).zip(LINES) {
            subject.execute(&[solve], &[solve]);
            let mut runs = subject.interpreter.runs();
            let instruction = (runs.frame + layout.frame_instruction) as *mut u64;
            // SAFETY: the frame is memory of the subject.
            unsafe { *instruction = solve + layout.code_begin + 2 * unit };
            let found = subject.take(&mut runs);
            // An instruction without a line counts for the first one.
            let expected = (100 + line.unwrap_or(0)) as u32;
            assert_eq!(subject.place(&found[0]), (0, expected), "unit {unit}");
        }
    }
}

#[test]
fn damaged_structures_end_a_run() {
    for layout in LAYOUTS {
        let mut subject = Subject::new(layout);
        let solve = subject.code("solve", 1);
        // A frame that is its own caller, and one that calls from nowhere.
        for caller in [None, Some(8), Some(1 << 40), Some(0x1001)] {
            subject.execute(&[solve], &[solve]);
            let runs = subject.interpreter.runs();
            let caller_of = (runs.frame + layout.frame_caller) as *mut u64;
            // SAFETY: the frame is memory of the subject.
            unsafe { *caller_of = caller.unwrap_or(runs.frame) };
            if let RunEnd::With(at) = layout.end {
                // SAFETY: as above.
                unsafe { *((runs.frame + at) as *mut u8) = 0 };
            }
            let mut runs = subject.interpreter.runs();
            let published = Published { table: &subject.table, used: &subject.used };
            let mut found = 0;
            runs.take(&subject.interpreter, &published, 7, |_| {
                found += 1;
                true
            });
            assert!(found <= MAX_RUN);
        }
    }
}

#[test]
fn functions_beyond_the_table_are_left_out() {
    let mut subject = Subject::new(&CPYTHON_3_13);
    let codes: Vec<u64> = (0..12).map(|line| subject.code("function", line)).collect();
    subject.execute(&[codes[0]], &codes);
    let mut runs = subject.interpreter.runs();
    assert_eq!(subject.take(&mut runs).len(), subject.functions.len());
}

#[test]
fn long_names_are_cut_between_characters() {
    let mut subject = Subject::new(&CPYTHON_3_12);
    let name = "ä".repeat(100);
    // A string of a hundred characters takes more memory than other structures of this test.
    let mut characters = vec![0u64; 64].into_boxed_slice();
    characters[STRING_LENGTH as usize / 8] = 100;
    characters[STRING_KIND as usize / 8] = 1 << 2 | 1 << 5;
    let text = characters.as_mut_ptr();
    for (index, character) in name.chars().enumerate() {
        // SAFETY: the text has room for 456 bytes.
        unsafe { text.cast::<u8>().add(CPYTHON_3_12.wide as usize + index).write(character as u8) };
    }
    let code = subject.code("", 1);
    // SAFETY: the code object is memory of the subject.
    unsafe { *((code + CPYTHON_3_12.code_name) as *mut u64) = text as u64 };
    subject.execute(&[code], &[code]);
    let found = subject.take(&mut subject.interpreter.runs());
    assert_eq!(subject.name(&found[0]).0, "ä".repeat(88));
}
