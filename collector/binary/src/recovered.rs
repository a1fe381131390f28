//! Serialised structure of a function, for processes without its code; without source positions.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::function::{Body, Function, loops};
use super::graph::Graph;
use super::natural_loops::Nest;

/// Blocks and loops of a function.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Recovered {
    entry: u64,
    parts: Vec<(u64, u64)>,
    graph: Graph,
    nest: Nest,
    calls: Vec<u64>,
    is_complete: bool,
}

impl Recovered {
    /// Returns the structure of a function; `None` if the function has none.
    pub fn of(function: &Function) -> Option<Self> {
        let body = function.body.as_ref().ok()?;
        Some(Self {
            entry: function.entry,
            parts: function.parts.iter().map(|part| (part.start, part.end)).collect(),
            graph: body.graph.clone(),
            nest: body.nest.clone(),
            calls: body.calls.clone(),
            is_complete: body.is_complete,
        })
    }

    /// Restores the function; `None` if any index is out of range, which damaged input may cause.
    pub fn restore(self, name: Option<Arc<str>>) -> Option<Function> {
        let is_sound = self.graph.is_sound()
            && self.nest.is_sound(self.graph.blocks().len())
            && self.parts.iter().all(|(start, end)| start < end)
            && !self.parts.is_empty();
        if !is_sound {
            return None;
        }
        let Self { entry, parts, graph, nest, calls, is_complete } = self;
        let loops = loops(&graph, &nest);
        let parts = parts.into_iter().map(|(start, end)| start..end).collect();
        let body = Body { graph, nest, loops, calls, is_complete };
        Some(Function::new(name, entry, parts, Ok(body)))
    }
}
