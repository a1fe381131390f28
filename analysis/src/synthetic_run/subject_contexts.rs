//! Contexts by the names of their functions.

use plimsoll_collector::profile::{ContextTree, Frame, FrameKind, Node, NodeId};

/// Contexts named by paths such as `main/solve/MPI_Barrier`; `MPI_Barrier@7` is call site 7,
/// `MPI_Barrier#20@7` has line 20 of app.c, and `loop` is a loop.
#[derive(Clone, Default)]
pub struct Contexts {
    pub tree: ContextTree,
}

impl Contexts {
    /// Returns the node of a path; adds the node if it does not exist. Names that begin with `loop`
    /// are loops, names in parentheses inlined functions.
    pub fn node(&mut self, path: &str) -> NodeId {
        let mut at = None;
        for name in path.split('/') {
            let (name, site) = name.split_once('@').unwrap_or((name, "0"));
            let (frame, site) = (self.frame(name), site.parse().unwrap());
            let wanted = Node { parent: at, frame, site };
            let known = self.tree.nodes.iter().position(|node| *node == wanted);
            at = Some(known.unwrap_or_else(|| {
                self.tree.nodes.push(wanted);
                self.tree.nodes.len() - 1
            }) as NodeId);
        }
        at.unwrap()
    }

    /// Returns the number of the frame with a name, which may follow its module and `!`.
    fn frame(&mut self, name: &str) -> u32 {
        let (library, name) =
            name.split_once('!').map_or((None, name), |(library, name)| (Some(library), name));
        let (name, line) = match name.split_once('#') {
            Some((name, line)) => (name, Some(line.parse().unwrap())),
            None => (name, None),
        };
        let call = Some(plimsoll_calls::id_of(name)).filter(|id| *id != 0);
        let mpi = name.starts_with("MPI_");
        let module = library.unwrap_or(match (call, name.split_once('+')) {
            (Some(_), _) if mpi => "libmpi.so.40",
            (Some(_), _) => "libc.so.6",
            // Named like code without a symbol.
            (None, Some((module, _))) => module,
            (None, None) => "app",
        });
        let kind = match name {
            _ if mpi => FrameKind::Mpi,
            _ if name.starts_with("loop") => FrameKind::Loop,
            _ if name.starts_with('(') => FrameKind::Inlined,
            _ => FrameKind::Function,
        };
        let file = line.map(|_| String::from("app.c"));
        let frame = Frame::new(kind, name.trim_matches(['(', ')']), module);
        let frame = Frame { call, file, line, ..frame };
        let known = self.tree.frames.iter().position(|known| *known == frame);
        known.unwrap_or_else(|| {
            self.tree.frames.push(frame);
            self.tree.frames.len() - 1
        }) as u32
    }
}
