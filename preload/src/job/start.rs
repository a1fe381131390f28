//! MPI_Init: finds out who is there, and lets each node's first rank collect the node.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use plimsoll_agent::process::{self, Observed};
use plimsoll_analysis::clocks::exchange;
use plimsoll_analysis::communicator::Communicator;
use plimsoll_analysis::mpi::node::{NodeRank, distribute, introduce};
use plimsoll_analysis::mpi::presence::Token;
use plimsoll_analysis::mpi::{Handle, HandleFacts, Library, MpiCommunicator};

use super::attendance::Attendance;
use super::{COLLECTOR, FACTS, INSIDE_MPI_INIT, Job, MAIN_THREAD, MpiSide, State, Together, get};
use crate::say;

/// Runs the real MPI_Init, defined at `definition`, which says whether it succeeded.
pub fn around_mpi_init<R>(definition: *const c_void, init: impl FnOnce() -> (R, bool)) -> R {
    // A Fortran layer that calls the C function, or a program that calls it again: this rank's
    // token must stay one.
    if INSIDE_MPI_INIT.load(Ordering::Relaxed) || get().is_some_and(Job::has_mpi) {
        return init().0;
    }
    crate::begin_for_mpi();
    let token = get().and_then(|job| job.token_of_session().or_else(leave_token));
    INSIDE_MPI_INIT.store(true, Ordering::Relaxed);
    let (result, succeeded) = init();
    INSIDE_MPI_INIT.store(false, Ordering::Relaxed);
    if succeeded
        && let Some(job) = get()
        && let Some(observed) = process::current()
    {
        job.mpi_started(observed, definition, token);
    }
    result
}

/// Lets the other ranks know that this one carries the library.
pub(super) fn leave_token() -> Option<Token> {
    let hide = |socket| process::current().map_or(-1, |observed| observed.adopt_descriptor(socket));
    match Token::leave(&hide) {
        Ok(token) => Some(token),
        Err(error) => {
            say::debug(|| format!("no token could be left: {error}"));
            None
        }
    }
}

/// The holders of profiles find out how their clocks stand. Collective over them.
pub(super) fn exchange_clocks(holders: &MpiCommunicator, holds: bool, state: &mut State) {
    if !holds || holders.size() == 1 {
        return;
    }
    match exchange(holders) {
        Ok(exchange) => state.exchanges.push(exchange),
        Err(error) => say::debug(|| format!("clocks could not be compared: {error}")),
    }
}

impl State {
    /// MPI_Init was called, or a session has brought the ranks together before.
    fn has_mpi(&self) -> bool {
        self.mpi.as_ref().is_some_and(|side| !side.by_session || side.together.is_some())
    }
}

impl Job {
    fn has_mpi(&self) -> bool {
        self.state.try_lock().is_none_or(|state| state.has_mpi() || state.done)
    }

    fn mpi_started(
        &'static self,
        observed: &'static Observed,
        definition: *const c_void,
        token: Option<Token>,
    ) {
        let mut state = self.state.lock();
        if state.has_mpi() || state.done {
            return;
        }
        let library = match Library::detect(definition) {
            Ok(library) => Arc::new(library),
            Err(error) => {
                say::warn(&format!("{error}; each process writes its own report"));
                return;
            }
        };
        let Ok((rank, size)) = MpiCommunicator::place_in_world(&library) else { return };
        say::debug(|| format!("rank {rank} of {size} on {} ({:?})", library.version, library.abi));
        let Attendance { mut apart, speaks, token, post } =
            Attendance::take(self, token, rank, size);
        let mut together = None;
        if apart.is_none() {
            let world = library.world();
            // SAFETY: the world is valid from MPI_Init on.
            match unsafe { self.come_together(observed, (&library, world), rank, &mut state) } {
                Ok(communicators) => together = Some(communicators),
                Err(reason) => apart = Some(format!("The ranks could not be compared: {reason}.")),
            }
        } else {
            self.collect_apart(observed, rank, size, &mut state);
        }
        drop(post);
        if let (true, Some(reason)) = (speaks, &apart) {
            say::warn(reason);
        }
        let side = MpiSide {
            library: library.clone(),
            rank,
            size,
            by_session: false,
            together,
            apart,
            speaks,
            token,
        };
        FACTS.store(
            Box::into_raw(Box::new(HandleFacts::new(library.clone(), Some(library.world())))),
            Ordering::Release,
        );
        MAIN_THREAD.store(plimsoll_agent::tls::get().cast(), Ordering::Relaxed);
        state.mpi = Some(side);
        self.note_spool(&state);
        if !self.settings.ranks.contains(rank) {
            observed.stop();
        }
        observed.begin();
    }

    /// Makes our communicators and lets each node's first rank collect the node. Collective.
    ///
    /// # Safety
    /// `of_all` is a valid communicator of all ranks.
    pub(super) unsafe fn come_together(
        &self,
        observed: &Observed,
        (library, of_all): (&Arc<Library>, Handle),
        rank: u32,
        state: &mut State,
    ) -> Result<Together, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        // SAFETY: as the caller promises.
        let world = unsafe { MpiCommunicator::duplicate(library.clone(), of_all) };
        let world = world.map_err(|error| text(&error))?;
        let node = world.node().map_err(|error| text(&error))?;
        self.let_go(state);
        let claimed = self.claim_together(&world);
        let me = self.introduce(observed, rank);
        let everyone = introduce(&node, me.clone()).map_err(|error| text(&error))?;
        let spool = |ranks: usize| {
            if let Some(claimed) = &claimed {
                self.spool_in(claimed.clone(), rank, ranks);
            }
        };
        let collected = everyone.map(|ranks| {
            spool(ranks.len());
            ranks.into_iter().map(|rank| self.collect(rank, state)).collect::<Vec<bool>>()
        });
        let collector = distribute(&node, collected).map_err(|error| text(&error))?;
        if collector.is_none() && me.watched {
            say::debug(|| format!("rank {rank} collects itself"));
            if node.rank() != 0 {
                spool(1);
            }
            self.collect(me, state);
        }
        let holds = !state.ranks.is_empty();
        if !holds {
            self.collector.discard_spool();
        }
        let elsewhere = collector.filter(|_| node.rank() != 0);
        COLLECTOR.store(elsewhere.unwrap_or(0), Ordering::Relaxed);
        if holds {
            state.collecting = self.spawn_collector();
        }
        let holders = world.split(u32::from(!holds)).map_err(|error| text(&error))?;
        exchange_clocks(&holders, holds, state);
        world.barrier().map_err(|error| text(&error))?;
        Ok(Together { world, node, holders, holds })
    }

    /// Collects this process alone, which is a rank whose others are out of reach.
    fn collect_apart(&self, observed: &Observed, rank: u32, size: u32, state: &mut State) {
        self.let_go(state);
        self.own_rules();
        self.spool_apart(rank, size);
        // Also one that is not to be watched: it has a report that says so.
        self.collect(NodeRank { watched: true, ..self.introduce(observed, rank) }, state);
        state.collecting = self.spawn_collector();
    }

    /// A collector takes over when the one before has let go.
    fn let_go(&self, state: &mut State) {
        self.stop_collector(state);
        for (key, _) in std::mem::take(&mut state.ranks) {
            self.collector.detach(key);
        }
    }

    fn collect(&self, rank: NodeRank, state: &mut State) -> bool {
        if !rank.watched {
            return false;
        }
        match self.collector.attach(rank.pid, rank.descriptor, rank.start_time) {
            Ok(key) => {
                state.ranks.push((key, rank));
                true
            }
            Err(error) => {
                say::debug(|| format!("rank {} is not readable from here: {error}", rank.rank));
                false
            }
        }
    }
}
