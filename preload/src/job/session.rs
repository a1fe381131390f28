//! MPI sessions in place of MPI_Init (MPI-4.1, 11.3).
//!
//! MPI_Session_init is not collective: a rank may begin a session after other ranks have ended
//! theirs. A communicator of all ranks, however, is made by all of them, and each has begun its
//! session before. When the first such communicator is made, the ranks come together as they do in
//! MPI_Init. Until then, each process writes a report of its own part when it ends.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use plimsoll_agent::observed_process::{self, Observed};
use plimsoll_comm::mpi::presence::Token;
use plimsoll_comm::mpi::{HandleFacts, Library, MpiCommunicator};

use super::preload_census::Census;
use super::start::leave_token;
use super::{FACTS, INSIDE_MPI_INIT, Job, MpiSide, Phase, get};
use crate::communicating_thread::ThreadSupport;
use crate::guard::{contained, guarded};
use crate::{communicating_thread, log};

/// Runs the real MPI_Session_init, defined at `definition`. `init` also returns the address of the
/// session's handle if the call succeeded.
pub fn around_session_init<R>(
    definition: *const c_void,
    init: impl FnOnce() -> (R, Option<Session>),
) -> R {
    if INSIDE_MPI_INIT.load(Ordering::Relaxed) || get().is_some_and(Job::knows_mpi) {
        return init().0;
    }
    let prepare = || {
        crate::begin_for_mpi();
        get().and_then(|_| leave_token())
    };
    let token = guarded("MPI_Session_init", prepare, || None);
    INSIDE_MPI_INIT.store(true, Ordering::Relaxed);
    let (result, session) = init();
    INSIDE_MPI_INIT.store(false, Ordering::Relaxed);
    let started = || {
        if let (Some(session), Some(job), Some(observed)) =
            (session, get(), observed_process::current())
        {
            job.session_started(observed, definition, session, token);
        }
    };
    contained(started, || ());
    result
}

/// Address of the application's handle of a session.
pub struct Session {
    /// Address of the handle.
    pub handle: *const c_void,
    /// Whether the handle is a Fortran handle.
    pub fortran: bool,
}

/// Handles a new communicator that MPI_Comm_create_from_group has stored at `made`. Not inlined,
/// since every measured call would need its stack space.
#[cold]
#[inline(never)]
pub fn made_from_group(made: *const c_void) {
    if let (Some(job), Some(observed)) = (get(), observed_process::current())
        && !made.is_null()
    {
        job.communicator_made(observed, made);
    }
}

impl Job {
    fn session_started(
        &self,
        observed: &Observed,
        definition: *const c_void,
        session: Session,
        token: Option<Token>,
    ) {
        let mut state = self.state.lock();
        if state.mpi.is_some() || state.phase != Phase::Collecting {
            return;
        }
        let Ok(library) = Library::detect(definition) else { return };
        let library = Arc::new(library);
        // SAFETY: MPI_Session_init has just made the session.
        let place = unsafe { library.place_in_session(session.handle, session.fortran) };
        let Some((rank, size)) = place else { return };
        log::debug(|| format!("rank {rank} of {size} by a session on {}", library.version));
        for (_, me) in &mut state.ranks {
            me.rank = rank;
        }
        FACTS.store(
            Box::into_raw(Box::new(HandleFacts::new(library.clone(), None))),
            Ordering::Release,
        );
        state.mpi = Some(MpiSide {
            library,
            rank,
            size,
            by_session: true,
            is_together: false,
            together: None,
            apart: (size > 1).then(|| {
                String::from(
                    "The program uses MPI sessions without MPI_Init and makes no communicator of \
                     all ranks from them, so ranks are not compared: each writes a report of its \
                     own.",
                )
            }),
            speaks: rank == 0,
            token,
        });
        self.note_spool(&state);
        if !self.settings.ranks.contains(rank) {
            observed.stop();
        }
    }

    /// Brings the ranks together if a communicator made from a group is the first one that holds
    /// all ranks; collective in that case.
    fn communicator_made(&'static self, observed: &'static Observed, made: *const c_void) {
        let taken = {
            let mut state = self.state.lock();
            let collecting = state.phase == Phase::Collecting;
            match state.mpi.as_mut() {
                Some(side) if side.by_session && !side.is_together && collecting => {
                    (side.library.clone(), side.rank, side.size, side.token.take())
                }
                _ => return,
            }
        };
        let (library, rank, size, token) = taken;
        // SAFETY: MPI has just made the communicator and put its handle there.
        let of_all = unsafe { library.handle_at(made) };
        // SAFETY: the communicator is valid.
        if unsafe { MpiCommunicator::size_of(&library, of_all) } != Some(size) {
            if let Some(side) = &mut self.state.lock().mpi {
                side.token = token;
            }
            return;
        }
        let mut token = token;
        let Census { mut apart, speaks, mailbox } = Census::take(self, &mut token, rank, size);
        let mut together = None;
        if apart.is_none() {
            // SAFETY: as above; all ranks are here.
            match unsafe { self.come_together(observed, (&library, of_all), rank) } {
                Ok(communicators) => together = Some(communicators),
                Err(reason) => {
                    apart = Some(format!("The ranks could not be compared: {reason}."));
                    self.collect_apart(observed, rank, size);
                }
            }
        }
        drop(mailbox);
        if let Some(together) = &together {
            let facts = HandleFacts::new(library, Some(together.world.handle()));
            FACTS.store(Box::into_raw(Box::new(facts)), Ordering::Release);
            communicating_thread::begin(ThreadSupport::Unknown);
        }
        let came_together = together.is_some();
        {
            let mut state = self.state.lock();
            if let Some(side) = &mut state.mpi {
                side.is_together = came_together;
                (side.together, side.apart, side.speaks, side.token) =
                    (together, apart, speaks, token);
            }
            self.note_spool(&state);
        }
        if came_together {
            observed.begin();
        }
    }

    /// Takes the token that a session has left, so that MPI_Init counts it.
    pub(super) fn token_of_session(&self) -> Option<Token> {
        self.state.lock().mpi.as_mut()?.token.take()
    }

    fn knows_mpi(&self) -> bool {
        self.state
            .try_lock()
            .is_none_or(|state| state.mpi.is_some() || state.phase != Phase::Collecting)
    }
}
