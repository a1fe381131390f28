//! Functions that stay without structure in all processes of a job, because one of the job's
//! collectors did not look them up by its deadline: a context with loops on one node and without
//! them on another would look like two contexts.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;

use serde::{Deserialize, Serialize};

use crate::{ModuleId, Structures};

/// A function that was given up, by values that are the same on all nodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GivenUp {
    module: ModuleName,
    /// Entry address, in addresses of the module's file.
    entry: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum ModuleName {
    BuildId(Vec<u8>),
    /// Path of a module without a build-id.
    Path(Vec<u8>),
}

impl Structures {
    /// Notes that a function was not looked up by the deadline, so that it has no structure in the
    /// profiles of all processes.
    pub fn give_up(&mut self, function: (ModuleId, u64)) {
        self.given_up.insert(function);
    }

    /// Returns whether a function was given up.
    pub fn is_given_up(&self, function: (ModuleId, u64)) -> bool {
        self.given_up.contains(&function)
    }

    /// Makes all functions that were given up available again, once there is time.
    pub fn resume(&mut self) {
        self.given_up.clear();
    }

    /// Returns the functions that were given up here.
    pub fn given_up(&self) -> BTreeSet<GivenUp> {
        let of_module = |id: ModuleId, module: ModuleName| {
            let entries = self.given_up.iter().filter(move |(other, _)| *other == id);
            entries.map(move |(_, entry)| GivenUp { module: module.clone(), entry: *entry })
        };
        self.named_modules().flat_map(|(id, module)| of_module(id, module)).collect()
    }

    /// Gives up these functions, which were given up by any collector, in the modules known here.
    pub fn give_up_all(&mut self, functions: &BTreeSet<GivenUp>) {
        let all = |(id, module): (ModuleId, ModuleName)| {
            let first = GivenUp { module, entry: 0 };
            let of_module = functions.range(first.clone()..);
            let of_module = of_module.take_while(move |other| other.module == first.module);
            of_module.map(move |function| (id, function.entry))
        };
        let known: Vec<_> = self.named_modules().flat_map(all).collect();
        self.given_up.extend(known);
    }

    fn named_modules(&self) -> impl Iterator<Item = (ModuleId, ModuleName)> {
        self.ids.iter().map(|((path, build_id), id)| {
            let name = match build_id.as_slice() {
                [] => ModuleName::Path(path.as_os_str().as_bytes().to_vec()),
                build_id => ModuleName::BuildId(build_id.to_vec()),
            };
            (*id, name)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_known_by_build_id_or_else_by_path() {
        let mut here = Structures::default();
        let program = here.module("/here/program".into(), vec![1, 2]);
        let script = here.module("/same/script".into(), vec![]);
        let unknown = here.module("/here/unknown".into(), vec![]);
        for function in [(program, 16), (program, 48), (script, 32), (unknown, 16)] {
            here.give_up(function);
        }
        let mut there = Structures::default();
        let script = there.module("/same/script".into(), vec![]);
        let other = there.module("/there/other".into(), vec![1]);
        let program = there.module("/there/program".into(), vec![1, 2]);
        let copy = there.module("/there/copy".into(), vec![1, 2]);
        there.give_up((other, 64));
        there.give_up_all(&here.given_up());
        let mut all: Vec<_> = there.given_up.iter().copied().collect();
        all.sort_by_key(|(module, entry)| (module.0, *entry));
        let expected = [(script, 32), (other, 64), (program, 16), (program, 48)];
        assert_eq!(all, [&expected[..], &[(copy, 16), (copy, 48)]].concat());
    }
}
