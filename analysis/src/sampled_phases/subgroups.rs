//! Groups of ranks that leave synchronisations together, from samples alone: ranks that share a
//! communicator are released at the same times (PPoPP20, 4.1, Figure 3).
//!
//! One rank at a time offers the ends of one of its sites that are not common to all ranks. The
//! ranks with an end at nearly all of these times are its group, and the ends that the whole group
//! has are synchronisations of the group. Groups that always synchronise at the same times look
//! like one.

use std::collections::BTreeSet;

use plimsoll_collector::profile::Subgroup;
use plimsoll_summary::ranks::RankSet;
use serde::{Deserialize, Serialize};

use super::align::Pairs;
use super::cut::{Cut, Division};
use super::ends::{End, Site, Sites};
use super::{MIN_COMMON_FRACTION, RankEnds, Vote, combine, matched};
use crate::communicator::{Communicator, CommunicatorError, broadcast, reduce};

/// Minimum number of sampled ends of a site from which a group is derived.
const MIN_ENDS: usize = 3;
/// Maximum number of offers.
const MAX_OFFERS: u32 = 256;

/// Ends of one site on one rank, on the reference's clock.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Offer {
    site: u32,
    rank: u32,
    ends: Vec<End>,
}

/// Ranks that were found to be a group, and their votes on each end of the offer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Group {
    ranks: RankSet,
    votes: Vec<Vote>,
}

/// State of a rank while groups are formed.
struct Candidate<'a> {
    rank: u32,
    period: i64,
    found: &'a RankEnds,
    /// Ends that delimit something already.
    taken: BTreeSet<usize>,
    /// Sites at which the rank is in a group, or alone.
    settled: BTreeSet<u32>,
    divisions: Vec<(usize, u32, Subgroup, u64)>,
}

/// Divisions of each local rank.
pub(super) struct Divisions {
    /// For each rank, by ascending position: index of the end, its site, the group, and the index
    /// of the synchronisation among those of the group.
    by_rank: Vec<Vec<(usize, u32, Subgroup, u64)>>,
    /// Set if there were more offers than [`MAX_OFFERS`].
    pub(super) has_more: bool,
}

impl Divisions {
    /// Returns the divisions of the local rank at a position.
    pub(super) fn of<'a>(
        &self,
        position: usize,
        ends: &'a [End],
        sites: &[&'a Site],
    ) -> Vec<Division<'a>> {
        let division = |(end, site, subgroup, index): &(usize, u32, Subgroup, u64)| Division {
            cut: Cut { end: &ends[*end], site: sites[*site as usize] },
            subgroup: *subgroup,
            index: *index,
        };
        self.by_rank[position].iter().map(division).collect()
    }
}

/// Finds groups among all ranks. `local` holds for each local rank its number, its period, its
/// ends, and the indices of those that delimit phases. Collective.
pub(super) fn find(
    comm: &dyn Communicator,
    local: Vec<(u32, i64, &RankEnds, BTreeSet<usize>)>,
    (ranks, sites): (u32, &Sites),
) -> Result<Divisions, CommunicatorError> {
    let mut candidates: Vec<Candidate<'_>> = local
        .into_iter()
        .map(|(rank, period, found, taken)| {
            let (settled, divisions) = (BTreeSet::new(), Vec::new());
            Candidate { rank, period, found, taken, settled, divisions }
        })
        .collect();
    let mut has_more = true;
    for name in 0..MAX_OFFERS {
        let ours = candidates.iter().filter_map(|it| it.offer(sites)).min_by_key(Offer::order);
        let first = |one: Option<Offer>, other: Option<Offer>| {
            one.into_iter().chain(other).min_by_key(Offer::order)
        };
        let Some(offer) = broadcast(comm, reduce(comm, ours, first))? else {
            has_more = false;
            break;
        };
        let answers: Vec<Option<Vec<Option<usize>>>> =
            candidates.iter().map(|it| it.answer(&offer, sites)).collect();
        let ours =
            candidates.iter().zip(&answers).fold(Group::new(&offer), |group, (it, answer)| {
                match answer {
                    Some(matches) => group.combine(it.group(matches)),
                    None => group,
                }
            });
        let group = broadcast(comm, reduce(comm, ours, Group::combine))?;
        let subgroup = Subgroup { name, ranks: group.ranks.len() };
        let together: Vec<usize> = group.ends(ranks);
        for (candidate, answer) in candidates.iter_mut().zip(answers) {
            if let Some(matches) = answer {
                candidate.join(&offer, &matches, (subgroup, &together));
            }
        }
    }
    let by_rank = candidates.into_iter().map(|mut candidate| {
        candidate.divisions.sort_unstable_by_key(|(end, ..)| *end);
        candidate.divisions
    });
    Ok(Divisions { by_rank: by_rank.collect(), has_more })
}

impl Offer {
    fn order(&self) -> (u32, u32) {
        (self.site, self.rank)
    }
}

impl Candidate<'_> {
    /// Returns the ends, with their indices, that delimit nothing yet.
    fn free(&self) -> impl Iterator<Item = (usize, &End)> {
        self.found.ends.iter().enumerate().filter(|(index, _)| !self.taken.contains(index))
    }

    /// Returns the ends of the first site that has enough of them and is not settled.
    fn offer(&self, sites: &Sites) -> Option<Offer> {
        let gaps = self.found.gaps.as_ref()?;
        let mut sampled = vec![0; sites.len()];
        for (_, end) in self.free().filter(|(_, end)| end.is_sampled) {
            end.sites.iter().for_each(|site| sampled[*site as usize] += 1);
        }
        let (site, _) = (0..)
            .zip(sampled)
            .find(|(site, ends)| *ends >= MIN_ENDS && !self.settled.contains(site))?;
        let there = self.free().filter(|(_, end)| end.sites.binary_search(&site).is_ok());
        let ends = there.map(|(_, end)| {
            let gap = gaps.at(end.at.saturating_sub(gaps.at(end.at)));
            End { sites: vec![site], ..end.moved(-gap) }
        });
        Some(Offer { site, rank: self.rank, ends: ends.collect() })
    }

    /// Returns, for each end of the offer, the index of the matching end of this rank; `None` if
    /// the rank is not in the group.
    fn answer(&self, offer: &Offer, sites: &Sites) -> Option<Vec<Option<usize>>> {
        if self.settled.contains(&offer.site) {
            return None;
        }
        let gaps = self.found.gaps.as_ref()?;
        let (indices, ours): (Vec<usize>, Vec<End>) =
            self.free().map(|(index, end)| (index, end.clone())).unzip();
        let pairs = Pairs::new(&offer.ends, &ours, sites);
        let matches = matched(&offer.ends, &ours, &pairs, gaps, self.period);
        let of_sampled = offer.ends.iter().zip(&matches).filter(|(end, _)| end.is_sampled);
        let (all, found) = of_sampled
            .fold((0, 0), |(all, found), (_, own)| (all + 1, found + usize::from(own.is_some())));
        let is_member =
            self.rank == offer.rank || found as f64 >= MIN_COMMON_FRACTION * f64::from(all);
        is_member.then(|| matches.into_iter().map(|own| Some(indices[own?])).collect())
    }

    /// Returns a group of this rank.
    fn group(&self, matches: &[Option<usize>]) -> Group {
        let vote = |own: &Option<usize>| Vote::of(own.map(|own| &self.found.ends[own]));
        Group { ranks: RankSet::from_iter([self.rank]), votes: matches.iter().map(vote).collect() }
    }

    /// Makes the rank a member of a group; `together` holds the indices of the offer's ends that
    /// all members have.
    fn join(
        &mut self,
        offer: &Offer,
        matches: &[Option<usize>],
        (subgroup, together): (Subgroup, &[usize]),
    ) {
        self.settled.insert(offer.site);
        for (index, at) in (0..).zip(together) {
            let Some(end) = matches[*at] else { continue };
            self.taken.insert(end);
            let sites = &self.found.ends[end].sites;
            let own = sites.binary_search(&offer.site).map_or_else(|_| sites[0], |_| offer.site);
            self.divisions.push((end, own, subgroup, index));
        }
    }
}

impl Group {
    fn new(offer: &Offer) -> Self {
        Self { ranks: RankSet::default(), votes: vec![Vote::default(); offer.ends.len()] }
    }

    fn combine(self, other: Self) -> Self {
        Self { ranks: self.ranks.union(&other.ranks), votes: combine(self.votes, other.votes) }
    }

    /// Returns the indices of the ends that all ranks of the group have in common; none if the
    /// group is a single rank, or all of `ranks`.
    fn ends(&self, ranks: u32) -> Vec<usize> {
        let members = self.ranks.len();
        let is_common = |vote: &Vote| vote.ranks == members && !vote.sampled.is_empty();
        let is_group = members > 1 && members < ranks;
        let common = self.votes.iter().enumerate().filter(|(_, vote)| is_group && is_common(vote));
        common.map(|(index, _)| index).collect()
    }
}
