//! Summary without its tree.

use std::collections::BTreeMap;

use serde::Serialize;

use plimsoll_summary::{
    Bicluster, Clocks, Collection, Communication, Counters, Efficiency, Loop, Loss, OpenMp, Phase,
    Population, ProcessThreads, Projection, RankCluster, Run, SchemaVersion, Segment, SideFile,
    Summary, ThreadCluster,
};

/// Defines [`Rest`] with these keys. The compiler demands all keys of a summary but the tree.
macro_rules! rest {
    ($($(#[$serde:meta])? $key:ident: $type:ty,)*) => {
        /// The keys of a summary except its tree, which is written in columns instead.
        #[derive(Serialize)]
        pub struct Rest<'s> {
            $($(#[$serde])? $key: &'s $type,)*
        }

        impl<'s> Rest<'s> {
            /// Borrows the keys.
            pub fn of(summary: &'s Summary) -> Self {
                let Summary { $($key,)* tree: _ } = summary;
                Self { $($key),* }
            }
        }
    };
}

rest! {
    schema: SchemaVersion,
    run: Run,
    collection: Collection,
    efficiency: Efficiency,
    projection: Projection,
    losses: Vec<Loss>,
    segments: Vec<Segment>,
    phases: Vec<Phase>,
    loops: Vec<Loop>,
    clusters: Vec<RankCluster>,
    biclusters: Vec<Bicluster>,
    population: Option<Population>,
    thread_clusters: Vec<ThreadCluster>,
    threads: ProcessThreads,
    clocks: Clocks,
    timeline: SideFile,
    per_rank: SideFile,
    communication: Communication,
    #[serde(skip_serializing_if = "Counters::is_empty")]
    counters: Counters,
    openmp: OpenMp,
    thresholds: BTreeMap<String, f64>,
    notes: Vec<String>,
}
