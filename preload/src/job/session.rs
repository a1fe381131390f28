//! MPI_Session_init in place of MPI_Init: each process tells its own part.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use plimsoll_agent::process::{self, Observed};
use plimsoll_analysis::mpi::{HandleFacts, Library};

use super::{FACTS, INSIDE_MPI_INIT, Job, MpiSide, get};
use crate::say;

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
}
