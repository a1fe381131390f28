//! Ranks as a population, of which a random sample keeps its samples (Fowler's slides: adaptive
//! sampling). Strata are the clusters of ranks.

pub mod mean_interval;
pub mod random_choice;
pub mod sample_size;
pub mod stratum_moments;
