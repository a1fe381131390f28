//! Members of the windows and files that exist: the call that frees one synchronises them, and no
//! MPI function may be asked about a handle that may be invalid.

use plimsoll_sys::lock::Lock;

use crate::mpi::Handle;

/// Maximum number of objects known at the same time. Beyond that the oldest are forgotten, and
/// their release is no synchronisation.
const MAX_OBJECTS: usize = 4096;

/// Kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// Window of one-sided communication.
    Window,
    /// File.
    File,
}

/// Handle of an object as the application's memory holds it. C and Fortran handles of one object
/// differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ObjectHandle {
    pub(super) kind: ObjectKind,
    pub(super) is_c: bool,
    pub(super) handle: Handle,
}

/// Members by object, oldest first.
pub(super) struct LiveObjects(Lock<Vec<(ObjectHandle, u32)>>);

impl LiveObjects {
    pub(super) const fn new() -> Self {
        Self(Lock::new(Vec::new()))
    }

    /// Adds an object that has just been created.
    pub(super) fn add(&self, object: ObjectHandle, members: u32) {
        let mut objects = self.0.lock();
        // If MPI reuses a handle, its earlier object was freed in a call that was not seen.
        objects.retain(|(known, _)| *known != object);
        if objects.len() == MAX_OBJECTS {
            objects.remove(0);
        }
        objects.push((object, members));
    }

    /// Removes an object; returns its members, or `None` if it is unknown.
    pub(super) fn remove(&self, object: ObjectHandle) -> Option<u32> {
        let mut objects = self.0.lock();
        let at = objects.iter().position(|(known, _)| *known == object)?;
        Some(objects.remove(at).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(handle: Handle) -> ObjectHandle {
        ObjectHandle { kind: ObjectKind::Window, is_c: true, handle }
    }

    #[test]
    fn members_are_those_of_the_last_object_with_the_handle() {
        let objects = LiveObjects::new();
        objects.add(window(7), 1);
        objects.add(window(8), 2);
        objects.add(window(7), 3);
        let file = ObjectHandle { kind: ObjectKind::File, ..window(7) };
        let in_fortran = ObjectHandle { is_c: false, ..window(7) };
        assert_eq!([file, in_fortran].map(|object| objects.remove(object)), [None; 2]);
        assert_eq!(objects.remove(window(7)), Some(3));
        assert_eq!(objects.remove(window(7)), None, "freed twice");
        assert_eq!(objects.remove(window(8)), Some(2));
    }

    #[test]
    fn objects_are_bounded() {
        let objects = LiveObjects::new();
        (0..=MAX_OBJECTS).for_each(|handle| objects.add(window(handle), 1));
        assert_eq!(objects.remove(window(0)), None);
        assert_eq!(objects.remove(window(1)), Some(1));
    }
}
