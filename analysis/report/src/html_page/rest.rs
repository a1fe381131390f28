//! The summary without its tree.

use serde::Serialize;

use plimsoll_summary::{
    Bicluster, Clocks, Collection, Efficiency, Loop, Loss, Phase, Projection, RankCluster, Run,
    SchemaVersion, Segment, SideFile, Summary, ThreadCluster,
};

/// All keys of a summary but `tree`, which travels in columns.
#[derive(Serialize)]
pub struct Rest<'s> {
    schema: SchemaVersion,
    run: &'s Run,
    collection: &'s Collection,
    efficiency: &'s Efficiency,
    projection: &'s Projection,
    losses: &'s [Loss],
    segments: &'s [Segment],
    phases: &'s [Phase],
    loops: &'s [Loop],
    clusters: &'s [RankCluster],
    thread_clusters: &'s [ThreadCluster],
    biclusters: &'s [Bicluster],
    clocks: &'s Clocks,
    timeline: &'s SideFile,
    per_rank: &'s SideFile,
    notes: &'s [String],
}

impl<'s> From<&'s Summary> for Rest<'s> {
    /// Names every field, so that a new one of the summary is a compile error until it is here.
    fn from(summary: &'s Summary) -> Self {
        let Summary {
            schema,
            run,
            collection,
            efficiency,
            projection,
            losses,
            segments,
            phases,
            loops,
            clusters,
            thread_clusters,
            biclusters,
            clocks,
            timeline,
            per_rank,
            tree: _,
            notes,
        } = summary;
        Self {
            schema: *schema,
            run,
            collection,
            efficiency,
            projection,
            losses,
            segments,
            phases,
            loops,
            clusters,
            thread_clusters,
            biclusters,
            clocks,
            timeline,
            per_rank,
            notes,
        }
    }
}
