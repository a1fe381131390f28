//! Plimsoll's analysis: trees in; metrics, phases, losses and reports out.
