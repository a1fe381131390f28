//! MPI_Init: takes the census of the ranks, and lets each node's first rank collect the node.

use std::ffi::c_void;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use plimsoll_agent::observed_process::{self, Observed};
use plimsoll_analysis::clocks::exchange;
use plimsoll_comm::communicator::{Communicator, CommunicatorError};
use plimsoll_comm::mpi::joint::{all_made, jointly};
use plimsoll_comm::mpi::node::{NodeRank, distribute, introduce};
use plimsoll_comm::mpi::presence::Token;
use plimsoll_comm::mpi::{Handle, HandleFacts, Library, MpiCommunicator};

use plimsoll_summary::settings::RANKS;
use plimsoll_sys::float_environment::in_default_environment;

use super::preload_census::Census;
use super::{COLLECTOR, FACTS, INSIDE_MPI_INIT, Job, MpiSide, Phase, State, Together, get};
use crate::communicating_thread::ThreadSupport;
use crate::guard::{self, contained, guarded};
use crate::{communicating_thread, idle_code, log};

/// Runs the real MPI_Init, defined at `definition`. `init` also returns whether MPI_Init succeeded.
pub fn around_mpi_init<R>(definition: *const c_void, init: impl FnOnce() -> (R, bool)) -> R {
    // A Fortran layer calls the C function, or the program calls MPI_Init again: this rank must
    // leave one token only.
    if INSIDE_MPI_INIT.load(Ordering::Relaxed) || get().is_some_and(Job::has_mpi) {
        return init().0;
    }
    let prepare = || {
        crate::begin_for_mpi();
        get().and_then(|job| job.token_of_session().or_else(leave_token))
    };
    let token = guarded("MPI_Init", prepare, || None);
    INSIDE_MPI_INIT.store(true, Ordering::Relaxed);
    let (result, succeeded) = init();
    INSIDE_MPI_INIT.store(false, Ordering::Relaxed);
    let started = || {
        if succeeded
            && let Some(job) = get()
            && let Some(observed) = observed_process::current()
        {
            job.mpi_started(observed, definition, token);
            idle_code::unmap();
        }
    };
    contained(started, || ());
    result
}

/// Moves a descriptor to a number that the application does not see.
pub(super) fn hide(descriptor: RawFd) -> RawFd {
    observed_process::current().map_or(-1, |observed| observed.adopt_descriptor(descriptor))
}

/// Leaves the token that shows the other ranks that this one carries the library.
pub(super) fn leave_token() -> Option<Token> {
    match Token::leave(&hide) {
        Ok(token) => Some(token),
        Err(error) => {
            log::debug(|| format!("no token could be left: {error}"));
            None
        }
    }
}

impl State {
    /// Returns whether MPI_Init has nothing left to do in this process.
    fn is_settled(&self) -> bool {
        self.has_mpi() || self.phase != Phase::Collecting
    }

    /// Returns whether MPI_Init was called, or a session has already brought the ranks together.
    fn has_mpi(&self) -> bool {
        self.mpi.as_ref().is_some_and(|side| !side.by_session || side.is_together)
    }
}

impl Job {
    fn has_mpi(&self) -> bool {
        self.state.try_lock().is_none_or(|state| state.is_settled())
    }

    fn mpi_started(
        &'static self,
        observed: &'static Observed,
        definition: *const c_void,
        token: Option<Token>,
    ) {
        if self.state.lock().is_settled() {
            return;
        }
        let library = match Library::detect(definition) {
            Ok(library) => Arc::new(library),
            Err(error) => {
                log::warn(&format!("{error}; each process writes its own report"));
                return;
            }
        };
        let Ok((rank, size)) = MpiCommunicator::place_in_world(&library) else { return };
        log::debug(|| format!("rank {rank} of {size} on {} ({:?})", library.version, library.abi));
        let mut token = token;
        let Census { mut apart, speaks, mailbox } = Census::take(self, &mut token, rank, size);
        let mut together = None;
        if apart.is_none() {
            let world = library.world();
            // SAFETY: the world is valid from MPI_Init on.
            match unsafe { self.come_together(observed, (&library, world), rank) } {
                Ok(communicators) => together = Some(communicators),
                Err(reason) => apart = Some(format!("The ranks could not be compared: {reason}.")),
            }
        }
        if apart.is_some() {
            self.collect_apart(observed, rank, size);
        }
        drop(mailbox);
        if let (true, Some(reason)) = (speaks, &apart) {
            log::warn(reason);
        }
        if speaks && !(0..size).any(|rank| self.settings.ranks.contains(rank)) {
            let chosen = self.settings.in_effect().remove(RANKS).unwrap_or_default();
            log::warn(&format!(
                "{RANKS}={chosen} is none of the {size} ranks: nothing is measured. Ranks count \
                 from 0."
            ));
            // Claimed before it was known that no rank has a profile.
            self.forget_empty_folder();
        }
        let side = MpiSide {
            library: library.clone(),
            rank,
            size,
            by_session: false,
            is_together: together.is_some(),
            together,
            apart,
            speaks,
            token,
        };
        FACTS.store(
            Box::into_raw(Box::new(HandleFacts::new(library.clone(), Some(library.world())))),
            Ordering::Release,
        );
        communicating_thread::begin(match library.calls_are_serialised() {
            Some(true) => ThreadSupport::Serialised,
            Some(false) => ThreadSupport::Multiple,
            None => ThreadSupport::Unknown,
        });
        {
            let mut state = self.state.lock();
            state.mpi = Some(side);
            self.note_spool(&state);
        }
        if !self.settings.ranks.contains(rank) {
            observed.stop();
        }
        observed.begin();
    }

    /// Creates Plimsoll's communicators and lets each node's first rank collect the node.
    /// Collective over all ranks.
    ///
    /// # Safety
    /// `of_all` is a valid communicator of all ranks.
    pub(super) unsafe fn come_together(
        &self,
        observed: &Observed,
        (library, of_all): (&Arc<Library>, Handle),
        rank: u32,
    ) -> Result<Together, String> {
        // SAFETY: as the caller promises.
        let world = unsafe { MpiCommunicator::duplicate(library.clone(), of_all) }?;
        let node = all_made(&world, world.node())?;
        let meet = || self.meet_node(observed, &world, &node, rank).map_err(|e| e.to_string());
        jointly(&world, &[&node], meet)?;
        self.declare_functions(observed);
        let holds = !self.state.lock().ranks.is_empty();
        let holders = all_made(&world, world.split(u32::from(!holds)))?;
        self.exchange_clocks(&holders, holds);
        world.barrier().map_err(|error| error.to_string())?;
        Ok(Together { world, node, holders, holds })
    }

    /// Exchanges the ranks of this node and decides which process collects which rank.
    fn meet_node(
        &self,
        observed: &Observed,
        world: &MpiCommunicator,
        node: &MpiCommunicator,
        rank: u32,
    ) -> Result<(), CommunicatorError> {
        guard::raise("coming together");
        // This process stays attached to its own collector until another process collects it, so
        // that a rank that ends meanwhile has a report. Its collector is stopped, so that two
        // collectors never read one ring at a time.
        self.stop_collector();
        let claimed = self.claim_together(world)?;
        let me = self.introduce(observed, rank);
        let everyone = introduce(node, me.clone())?;
        let spool = |ranks: usize| {
            if let Some(claimed) = &claimed {
                self.spool_in(claimed.clone(), rank, ranks);
            }
        };
        let collected = everyone.map(|ranks| {
            self.let_go();
            spool(ranks.len());
            ranks.into_iter().map(|rank| self.collect(rank)).collect::<Vec<bool>>()
        });
        let collector = distribute(node, collected)?;
        if node.rank() != 0 {
            self.let_go();
        }
        if collector.is_none() && me.watched {
            log::debug(|| format!("rank {rank} collects itself"));
            if node.rank() != 0 {
                spool(1);
            }
            self.collect(me);
        }
        let holds = !self.state.lock().ranks.is_empty();
        if !holds {
            self.collector.discard_spool();
        }
        let elsewhere = collector.filter(|_| node.rank() != 0);
        COLLECTOR.store(elsewhere.unwrap_or(0), Ordering::Relaxed);
        if holds {
            self.start_collector();
        }
        Ok(())
    }

    /// Collects this process alone: the other ranks of its job are out of reach.
    pub(super) fn collect_apart(&self, observed: &Observed, rank: u32, size: u32) {
        self.let_go();
        self.own_rules();
        self.spool_apart(rank, size);
        // A rank that is not to be watched is collected too: its report says so.
        self.collect(NodeRank { watched: true, ..self.introduce(observed, rank) });
        self.start_collector();
    }

    /// Stops the collector and detaches its ranks, so that another collector can take over.
    fn let_go(&self) {
        self.stop_collector();
        let ranks = std::mem::take(&mut self.state.lock().ranks);
        for (key, _) in ranks {
            self.collector.detach(key);
        }
    }

    fn start_collector(&self) {
        let collecting = self.spawn_collector();
        self.state.lock().collecting = collecting;
    }

    /// Measures the offsets between the clocks of the holders of profiles. Collective over the
    /// holders.
    pub(super) fn exchange_clocks(&self, holders: &MpiCommunicator, holds: bool) {
        if !holds || holders.size() == 1 {
            return;
        }
        let compare = || exchange(holders).map_err(|error| error.to_string());
        match in_default_environment(|| jointly(holders, &[], compare)) {
            Ok(exchange) => self.state.lock().exchanges.push(exchange),
            Err(error) => log::debug(|| format!("clocks could not be compared: {error}")),
        }
    }

    fn collect(&self, rank: NodeRank) -> bool {
        let mut state = self.state.lock();
        // Once a report is being written, no thread would evaluate this rank.
        if !rank.watched || state.phase != Phase::Collecting {
            return false;
        }
        match self.collector.attach(rank.pid, rank.descriptor, rank.start_time) {
            Ok(key) => {
                state.ranks.push((key, rank));
                true
            }
            Err(error) => {
                log::debug(|| format!("rank {} is not readable from here: {error}", rank.rank));
                false
            }
        }
    }
}
