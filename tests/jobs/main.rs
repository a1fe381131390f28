//! Whole jobs under real MPIs, each held against the truth of its subject.

mod balanced;
mod calls;
mod clocks;
mod clusters;
mod comings;
mod digest;
mod endings;
mod imbalance;
mod lammps;
mod leftovers;
mod loops;
mod losses;
mod marks;
mod matrix;
mod nodes;
mod observers;
mod partial;
mod phases;
mod plain;
mod reports;
mod sessions;
mod settings;
mod streams;
mod subjects;
