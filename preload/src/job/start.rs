//! MPI_Init: finds out who is there, and lets each node's first rank collect the node.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use plimsoll_agent::process::{self, Observed};
use plimsoll_analysis::communicator::Communicator;
use plimsoll_analysis::mpi::node::{NodeRank, distribute, introduce};
use plimsoll_analysis::mpi::presence::Token;
use plimsoll_analysis::mpi::{HandleFacts, Library, MpiCommunicator};

use super::{
    COLLECTED_ELSEWHERE, FACTS, INSIDE_MPI_INIT, Job, MAIN_THREAD, MpiSide, State, Together, get,
};
use crate::say;

/// Runs the real MPI_Init, defined at `definition`, which says whether it succeeded.
pub fn around_mpi_init<R>(definition: *const c_void, init: impl FnOnce() -> (R, bool)) -> R {
    // A Fortran layer that calls the C function, or a program that calls it again: this rank's
    // token must stay one.
    if INSIDE_MPI_INIT.load(Ordering::Relaxed) || get().is_some_and(Job::has_mpi) {
        return init().0;
    }
    crate::begin_for_mpi();
    let hide = |socket| process::current().map_or(-1, |observed| observed.adopt_descriptor(socket));
    let token = get().and_then(|_| match Token::leave(&hide) {
        Ok(token) => Some(token),
        Err(error) => {
            say::debug(|| format!("no token could be left: {error}"));
            None
        }
    });
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

/// Runs the real MPI_Session_init, defined at `definition`, which says where the session's handle
/// is if it succeeded.
pub fn around_session_init<R>(
    definition: *const c_void,
    init: impl FnOnce() -> (R, Option<Session>),
) -> R {
    if INSIDE_MPI_INIT.load(Ordering::Relaxed) || get().is_some_and(Job::knows_mpi) {
        return init().0;
    }
    crate::begin_for_mpi();
    INSIDE_MPI_INIT.store(true, Ordering::Relaxed);
    let (result, session) = init();
    INSIDE_MPI_INIT.store(false, Ordering::Relaxed);
    if let (Some(session), Some(job), Some(observed)) = (session, get(), process::current()) {
        job.session_started(observed, definition, session);
    }
    result
}

/// Where the application has the handle of a session.
pub struct Session {
    /// The handle's address.
    pub handle: *const c_void,
    /// It is Fortran's.
    pub fortran: bool,
}

impl State {
    /// MPI_Init was called.
    fn has_mpi(&self) -> bool {
        self.mpi.as_ref().is_some_and(|side| !side.by_session)
    }
}

impl Job {
    /// A session makes no collective promise: a rank may begin one when others have ended theirs.
    /// So nothing can be communicated, and each process tells its own part when it ends.
    fn session_started(&self, observed: &Observed, definition: *const c_void, session: Session) {
        let mut state = self.state.lock();
        if state.mpi.is_some() || state.done {
            return;
        }
        let Ok(library) = Library::detect(definition) else { return };
        let library = Arc::new(library);
        // SAFETY: MPI_Session_init has just made the session.
        let place = unsafe { library.place_in_session(session.handle, session.fortran) };
        let Some((rank, size)) = place else { return };
        say::debug(|| format!("rank {rank} of {size} by a session on {}", library.version));
        for (_, me) in &mut state.ranks {
            me.rank = rank;
        }
        FACTS.store(
            Box::into_raw(Box::new(HandleFacts::new(library.clone(), false))),
            Ordering::Release,
        );
        state.mpi = Some(MpiSide {
            library,
            rank,
            size,
            by_session: true,
            together: None,
            apart: (size > 1).then(|| {
                String::from(
                    "The program uses MPI sessions without MPI_Init, so ranks are not compared: each writes a \
                     report of its own.",
                )
            }),
            speaks: rank == 0,
            _token: None,
        });
        if !self.settings.ranks.contains(rank) {
            observed.stop();
        }
    }

    fn knows_mpi(&self) -> bool {
        self.state.try_lock().is_none_or(|state| state.mpi.is_some() || state.done)
    }

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
        let present = token.as_ref().and_then(|token| token.count().ok()).unwrap_or_default();
        let mut side = MpiSide {
            library: library.clone(),
            rank,
            size,
            by_session: false,
            together: None,
            apart: None,
            speaks: rank == present.lowest_rank.unwrap_or(0),
            _token: token,
        };
        if present.processes == size {
            match self.come_together(observed, &library, rank, &mut state) {
                Ok(together) => side.together = Some(together),
                Err(reason) => {
                    side.apart = Some(format!("The ranks could not be compared: {reason}."))
                }
            }
        } else {
            side.apart = Some(format!(
                "Only {} of {size} ranks carry Plimsoll on this node, so ranks are not compared: each writes a \
                 report of its own. Start all ranks with `plimsoll run` or LD_PRELOAD, on one node.",
                present.processes
            ));
            for (_, me) in &mut state.ranks {
                me.rank = rank;
            }
        }
        if let (true, Some(reason)) = (side.speaks, &side.apart) {
            say::warn(reason);
        }
        FACTS.store(Box::into_raw(Box::new(HandleFacts::new(library, true))), Ordering::Release);
        MAIN_THREAD.store(plimsoll_agent::tls::get().cast(), Ordering::Relaxed);
        state.mpi = Some(side);
        if !self.settings.ranks.contains(rank) {
            observed.stop();
        }
        observed.begin();
    }

    /// Makes our communicators and lets each node's first rank collect the node. Collective.
    fn come_together(
        &self,
        observed: &Observed,
        library: &Arc<Library>,
        rank: u32,
        state: &mut State,
    ) -> Result<Together, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let world = MpiCommunicator::world(library.clone()).map_err(|error| text(&error))?;
        let node = world.node().map_err(|error| text(&error))?;
        // A collector takes over when the one before has let go.
        self.stop_collector(state);
        for (key, _) in std::mem::take(&mut state.ranks) {
            self.collector.detach(key);
        }
        let me = self.introduce(observed, rank);
        let everyone = introduce(&node, me.clone()).map_err(|error| text(&error))?;
        let collected = everyone.map(|ranks| {
            ranks.into_iter().map(|rank| self.collect(rank, state)).collect::<Vec<bool>>()
        });
        let is_collected = distribute(&node, collected).map_err(|error| text(&error))?;
        if !is_collected && me.watched {
            say::debug(|| format!("rank {rank} collects itself"));
            self.collect(me, state);
        }
        let holds = !state.ranks.is_empty();
        COLLECTED_ELSEWHERE.store(is_collected && node.rank() != 0, Ordering::Relaxed);
        if holds {
            state.collecting = self.spawn_collector();
        }
        let holders = world.split(u32::from(!holds)).map_err(|error| text(&error))?;
        world.barrier().map_err(|error| text(&error))?;
        Ok(Together { world, node, holders, holds })
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
