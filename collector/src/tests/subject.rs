//! A synthetic process: the producer's side of a segment, in this process.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use plimsoll_calls::id_of;
use plimsoll_sys::own::Identity;
use plimsoll_sys::process_stat::ProcessStat;
use plimsoll_wire::record::{
    Delta, Encoder, MAX_RECORD_BYTES, OffCpu, Record, STAMP_SHIFT, Stamp, VERSION, tick_stamp,
};
use plimsoll_wire::segment::{
    ADDRESS_IS_LEAF, ADDRESSES_OFFSET, Address, MAGIC, MODULES_OFFSET, ModuleEntry, Process,
    SCRIPTS_OFFSET, ScriptFunction, ThreadArea, ThreadState, script_value, segment_bytes,
    thread_offset,
};
use plimsoll_wire::sync_id::SyncId;

use crate::attach::{AttachError, Segment};
use crate::collected_process::Process as CollectedProcess;
use crate::{Collector, Options, ProcessKey};

/// Nanoseconds of a stamp in synthetic processes: their counters run at 1 GHz.
pub(crate) const STAMP_NS: u64 = 1 << STAMP_SHIFT;

/// The sampling period, in stamps.
pub(crate) const PERIOD: u64 = 100;

/// Stamp at which synthetic runs begin.
pub(crate) const BEGIN: u64 = 1000;

pub(crate) struct Subject {
    file: OwnedFd,
    start: *mut u8,
    length: usize,
    ring_bytes: usize,
    start_time: u64,
    addresses: u32,
    known: HashMap<(u64, u32, u32), u32>,
    modules: u32,
}

impl Subject {
    /// A process with one thread, that runs from [`BEGIN`] on.
    pub(crate) fn new(ring_bytes: usize) -> Self {
        let length = segment_bytes(ring_bytes);
        // SAFETY: plain system calls on a new descriptor and a new mapping.
        let (file, start) = unsafe {
            let fd = libc::memfd_create(c"subject".as_ptr(), libc::MFD_CLOEXEC);
            assert!(fd >= 0);
            assert_eq!(libc::ftruncate(fd, length as libc::off_t), 0);
            let start = libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                fd,
                0,
            );
            assert_ne!(start, libc::MAP_FAILED);
            (OwnedFd::from_raw_fd(fd), start.cast())
        };
        let known = HashMap::new();
        let start_time = ProcessStat::read("self").unwrap().start_time;
        let mut subject =
            Self { file, start, length, ring_bytes, start_time, addresses: 1, known, modules: 0 };
        let header = subject.header();
        header.version.store(VERSION, Ordering::Relaxed);
        header.pid.store(std::process::id(), Ordering::Relaxed);
        header.start_time.store(start_time, Ordering::Relaxed);
        header.period_ns.store(PERIOD * STAMP_NS, Ordering::Relaxed);
        header.period_stamps.store(PERIOD, Ordering::Relaxed);
        header.kept_period_stamps.store(PERIOD, Ordering::Relaxed);
        header.ring_bytes.store(ring_bytes as u32, Ordering::Relaxed);
        // An anchor in the future is not believed, so that the coarse rate below is exact.
        header.anchor_ns.store(u64::MAX / 2, Ordering::Relaxed);
        header.ns_per_ticks_q32.store(1 << 32, Ordering::Relaxed);
        header.begin_stamp.store(BEGIN, Ordering::Relaxed);
        let identity = Identity::of(subject.file.as_raw_fd()).unwrap();
        header.device.store(identity.device, Ordering::Relaxed);
        header.inode.store(identity.inode, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        subject.module("/nowhere/app", 0, &[]);
        subject.begin_thread(0, 0);
        subject
    }

    pub(crate) fn attach(&self, collector: &Collector) -> Result<ProcessKey, AttachError> {
        collector.attach(std::process::id(), self.file.as_raw_fd(), self.start_time)
    }

    /// Returns the process as a collector attaches it.
    pub(crate) fn process(&self) -> CollectedProcess {
        let (pid, fd) = (std::process::id(), self.file.as_raw_fd());
        CollectedProcess::attach(pid, fd, self.start_time, &Options::default(), None).unwrap()
    }

    pub(crate) fn segment(&self) -> Result<Segment, AttachError> {
        Segment::open(std::process::id(), self.file.as_raw_fd(), self.start_time)
    }

    /// Gives the segment to another process, as its standard input.
    pub(crate) fn hand_over(&self) -> (std::process::Child, u64) {
        let stdin = self.file.try_clone().unwrap();
        let child = std::process::Command::new("sleep").arg("600").stdin(stdin).spawn().unwrap();
        let start_time = ProcessStat::read(child.id()).unwrap().start_time;
        self.header().pid.store(child.id(), Ordering::Relaxed);
        self.header().start_time.store(start_time, Ordering::Relaxed);
        (child, start_time)
    }

    /// Limits the number of thread areas.
    pub(crate) fn shrink(&self, areas: usize) {
        let size = thread_offset(areas, self.ring_bytes) as libc::off_t;
        // SAFETY: nobody has touched what is cut off.
        assert_eq!(unsafe { libc::ftruncate(self.file.as_raw_fd(), size) }, 0);
    }

    /// Returns a file of the application with the segment's content up to the first thread area.
    pub(crate) fn copy(&self) -> std::fs::File {
        let mut copy = tempfile::tempfile().unwrap();
        // SAFETY: the mapping is longer, and nobody writes.
        let bytes =
            unsafe { std::slice::from_raw_parts(self.start, thread_offset(1, self.ring_bytes)) };
        std::io::Write::write_all(&mut copy, bytes).unwrap();
        copy.set_len(self.length as u64).unwrap();
        copy
    }

    pub(crate) fn header(&self) -> &Process {
        // SAFETY: the mapping holds a header of atomics and lives as long as `self`.
        unsafe { &*self.start.cast() }
    }

    pub(crate) fn area(&self, index: usize) -> &ThreadArea {
        let offset = thread_offset(index, self.ring_bytes);
        // SAFETY: the mapping holds all areas, of atomics, and lives as long as `self`.
        unsafe { &*self.start.add(offset).cast() }
    }

    /// Sets the end of the run.
    pub(crate) fn end_at(&self, stamp: u64) {
        self.header().end_stamp.store(stamp, Ordering::Release);
    }

    /// Announces a module; its number is the index plus one.
    pub(crate) fn module(&mut self, path: &str, bias: u64, build_id: &[u8]) -> u32 {
        // SAFETY: the table lies within the mapping and has room for thousands.
        let entry: &ModuleEntry = unsafe {
            &*self.start.add(MODULES_OFFSET).cast::<ModuleEntry>().add(self.modules as usize)
        };
        entry.bias.store(bias, Ordering::Relaxed);
        for (place, byte) in entry.path.iter().zip(path.bytes()) {
            place.store(byte, Ordering::Relaxed);
        }
        for (place, byte) in entry.build_id.iter().zip(build_id) {
            place.store(*byte, Ordering::Relaxed);
        }
        entry.build_id_bytes.store(build_id.len() as u32, Ordering::Release);
        entry.path_bytes.store(path.len() as u32, Ordering::Release);
        self.modules += 1;
        self.header().modules.store(self.modules, Ordering::Release);
        self.modules
    }

    /// Announces an address.
    pub(crate) fn address(&mut self, value: u64, module: u32, flags: u32) -> u32 {
        if let Some(id) = self.known.get(&(value, module, flags)) {
            return *id;
        }
        let id = self.addresses;
        // SAFETY: the table lies within the mapping and has room for thousands.
        let entry: &Address =
            unsafe { &*self.start.add(ADDRESSES_OFFSET).cast::<Address>().add(id as usize) };
        entry.module.store(module, Ordering::Relaxed);
        entry.flags.store(flags, Ordering::Relaxed);
        entry.value.store(value, Ordering::Release);
        self.addresses += 1;
        self.header().addresses.store(self.addresses, Ordering::Release);
        self.known.insert((value, module, flags), id);
        id
    }

    /// The address id of a line of a function of a script, which begins at line 3 and which an
    /// interpreter in module `module` executes.
    pub(crate) fn script(&mut self, index: u32, (name, line): (&str, u32), module: u32) -> u32 {
        // SAFETY: the table lies within the mapping and has room for thousands.
        let entry: &ScriptFunction = unsafe {
            &*self.start.add(SCRIPTS_OFFSET).cast::<ScriptFunction>().add(index as usize)
        };
        for (text, room, bytes) in [
            (name, &entry.name[..], &entry.name_bytes),
            ("/home/ada/model.py", &entry.file[..], &entry.file_bytes),
        ] {
            for (place, byte) in room.iter().zip(text.bytes()) {
                place.store(byte, Ordering::Relaxed);
            }
            bytes.store(text.len() as u32, Ordering::Relaxed);
        }
        entry.line.store(3, Ordering::Relaxed);
        self.address(script_value(index, line), module, ADDRESS_IS_LEAF)
    }

    /// The address id of a function without symbols: it is called `app+0x1000` for 0x1000.
    pub(crate) fn code(&mut self, offset: u64) -> u32 {
        self.address(offset, 1, ADDRESS_IS_LEAF)
    }

    /// The address id of a wrapped call.
    pub(crate) fn call(&mut self, name: &str) -> u32 {
        let id = id_of(name);
        assert_ne!(id, 0, "{name} is not wrapped");
        self.address(u64::from(id), 0, 0)
    }

    /// A thread begins in an area.
    pub(crate) fn begin_thread(&self, index: usize, routine: u32) {
        let thread = &self.area(index).thread;
        thread.start_routine.store(routine, Ordering::Relaxed);
        thread.generation.fetch_add(1, Ordering::Relaxed);
        thread.state.store(ThreadState::Live as u32, Ordering::Release);
        self.header().threads.fetch_max(index as u32 + 1, Ordering::AcqRel);
    }

    /// Ends a thread: its last record is written.
    pub(crate) fn end_thread(&self, index: usize) {
        self.area(index).thread.state.store(ThreadState::Ended as u32, Ordering::Release);
    }

    /// Writes bytes into a ring; false if they do not fit.
    pub(crate) fn write(&self, index: usize, bytes: &[u8]) -> bool {
        let thread = &self.area(index).thread;
        let head = thread.head.load(Ordering::Relaxed);
        let used = head - thread.tail.load(Ordering::Acquire);
        if used + bytes.len() as u64 > self.ring_bytes as u64 {
            return false;
        }
        let ring = thread_offset(index, self.ring_bytes) + size_of::<ThreadArea>();
        for (i, byte) in bytes.iter().enumerate() {
            let at = (head as usize + i) & (self.ring_bytes - 1);
            // SAFETY: the ring lies within the mapping, and `at` within the ring.
            unsafe { self.start.add(ring + at).write_volatile(*byte) };
        }
        thread.head.store(head + bytes.len() as u64, Ordering::Release);
        true
    }

    /// A writer of records for a thread.
    pub(crate) fn writer(&self, index: usize) -> Writer<'_> {
        Writer { subject: self, index, stack: Vec::new(), slots: HashMap::new(), last: None }
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        // SAFETY: the mapping is this subject's alone.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}

/// Writes a thread's records, given whole stacks and absolute stamps.
pub(crate) struct Writer<'a> {
    subject: &'a Subject,
    index: usize,
    stack: Vec<u32>,
    slots: HashMap<u32, Vec<u32>>,
    last: Option<u64>,
}

impl Writer<'_> {
    pub(crate) fn put(&mut self, record: &Record<'_>) {
        let mut buffer = vec![0; MAX_RECORD_BYTES];
        let mut encoder = Encoder::new(&mut buffer);
        let bytes = encoder.put(record).unwrap();
        assert!(self.subject.write(self.index, bytes), "the ring is full");
    }

    /// Stamp of the last timed record; `None` after a loss.
    pub(crate) fn last(&self) -> Option<u64> {
        self.last
    }

    fn stamp(&mut self, now: u64) -> Stamp {
        let stamp = self.last.map_or(Stamp::Resync(now), |last| Stamp::Delta(now - last));
        self.last = Some(now);
        stamp
    }

    fn kept(&self, stack: &[u32]) -> usize {
        self.stack.iter().zip(stack).take_while(|(one, other)| one == other).count()
    }

    pub(crate) fn sample(&mut self, now: u64, stack: &[u32]) {
        self.sample_as(now, stack, None, None);
    }

    pub(crate) fn sample_as(
        &mut self,
        now: u64,
        stack: &[u32],
        entered: Option<u64>,
        off_cpu: Option<OffCpu>,
    ) {
        let kept = self.kept(stack);
        let delta = Delta { dropped: (self.stack.len() - kept) as u32, added: &stack[kept..] };
        let stamp = self.stamp(now);
        self.put(&Record::Sample { stamp, stack: delta, entered, off_cpu, truncated: false });
        self.stack = stack.to_vec();
    }

    /// Writes a sample without outer frames.
    pub(crate) fn truncated(&mut self, now: u64, stack: &[u32]) {
        let delta = Delta { dropped: self.stack.len() as u32, added: stack };
        let stamp = self.stamp(now);
        let (entered, off_cpu) = (None, None);
        self.put(&Record::Sample { stamp, stack: delta, entered, off_cpu, truncated: true });
        self.stack = stack.to_vec();
    }

    /// Writes a sample with this delay beyond a period after the last record.
    pub(crate) fn tick(&mut self, delay: i8, stack: &[u32]) {
        let kept = self.kept(stack);
        let delta = Delta { dropped: (self.stack.len() - kept) as u32, added: &stack[kept..] };
        let last = self.last.expect("a tick follows a timed record");
        self.last = tick_stamp(last, PERIOD, delay);
        self.put(&Record::Tick { delay, stack: delta });
        self.stack = stack.to_vec();
    }

    pub(crate) fn slot(&mut self, slot: u32, stack: &[u32]) {
        let kept = self.kept(stack);
        let delta = Delta { dropped: (self.stack.len() - kept) as u32, added: &stack[kept..] };
        self.put(&Record::Slot { slot, stack: delta });
        self.slots.insert(slot, stack.to_vec());
    }

    pub(crate) fn tally(&mut self, slot: u32, count: u64, sum: u64, bytes: u64) {
        self.put(&Record::Tally { slot, count, sum, bytes });
    }

    pub(crate) fn exit(&mut self, now: u64, slot: u32, duration: u64, sync: Option<u64>) {
        let sync = sync.map(|index| SyncId { subgroup: None, index });
        let path = self.slots[&slot].clone();
        let kept = self.kept(&path) as u32;
        let stamp = self.stamp(now);
        self.put(&Record::Exit {
            stamp,
            slot,
            common: kept,
            duration,
            bytes: 8,
            sync,
            off_cpu: None,
        });
        self.stack = path;
    }

    pub(crate) fn pause(&mut self, now: u64) {
        let stamp = self.stamp(now);
        self.put(&Record::Pause { stamp });
    }

    pub(crate) fn resume(&mut self, now: u64) {
        let stamp = self.stamp(now);
        self.put(&Record::Resume { stamp });
    }

    pub(crate) fn end(&mut self, now: u64) {
        let stamp = self.stamp(now);
        self.put(&Record::End { stamp });
    }

    /// Records are lost: what follows is relative to the empty stack.
    pub(crate) fn mark_gap(&mut self, records: u64) {
        self.put(&Record::Lost { records });
        self.stack.clear();
        self.slots.clear();
        self.last = None;
    }
}
