//! A bounded sample of the instances in a cluster, from which a representative is chosen.

use serde::{Deserialize, Serialize};

use super::members::Members;

/// Maximum number of instances in a sample.
pub const MAX_SAMPLED: usize = 32;

/// One iteration of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// Number of the iteration in its execution of the loop, from 0.
    pub number: u64,
    /// Duration, in the tree's unit of time.
    pub duration: u64,
}

/// Instances chosen uniformly from all instances of a cluster: those with the lowest hashes, all
/// of them up to [`MAX_SAMPLED`]. So the sample of a merged cluster follows from the samples of its
/// parts, in any order of merging, and no random numbers are needed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceSample {
    /// By ascending hash.
    instances: Vec<Instance>,
}

impl InstanceSample {
    /// Creates the sample of a single instance.
    pub fn one(instance: Instance) -> Self {
        Self { instances: vec![instance] }
    }

    /// Returns the sampled instances in no particular order.
    pub fn instances(&self) -> &[Instance] {
        &self.instances
    }

    /// Adds the instances of another sample.
    pub fn join(&mut self, other: &Self) {
        for instance in &other.instances {
            let at = self.instances.partition_point(|known| hash(known) < hash(instance));
            if at < MAX_SAMPLED {
                self.instances.truncate(MAX_SAMPLED - 1);
                self.instances.insert(at, *instance);
            }
        }
    }

    /// Returns the instance with the duration nearest to `mean`, the first of several; `None` for
    /// an empty sample.
    pub fn nearest(&self, mean: u64) -> Option<Instance> {
        let distance = |it: &&Instance| (it.duration.abs_diff(mean), it.number);
        self.instances.iter().min_by_key(distance).copied()
    }

    /// Keeps only the instances with a number in `members`.
    pub(super) fn keep(&mut self, members: &Members) {
        self.instances.retain(|instance| members.contains(instance.number));
    }

    /// Returns the sample converted to another unit of time.
    pub(super) fn scaled(&self, time: impl Fn(u64) -> u64) -> Self {
        let scale = |it: &Instance| Instance { duration: time(it.duration), ..*it };
        Self { instances: self.instances.iter().map(scale).collect() }
    }

    /// Returns the memory in use, in bytes, without the value itself.
    pub(super) fn bytes(&self) -> usize {
        self.instances.capacity() * size_of::<Instance>()
    }
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). Executions of a loop repeat
/// numbers, so the duration is hashed, too.
fn hash(instance: &Instance) -> u64 {
    let mut hash = instance.number.wrapping_add(instance.duration.rotate_left(32));
    hash = hash.wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(numbers: impl IntoIterator<Item = u64>) -> InstanceSample {
        let mut sample = InstanceSample::default();
        for number in numbers {
            sample.join(&InstanceSample::one(Instance { number, duration: 100 + 7 * number }));
        }
        sample
    }

    #[test]
    fn few_instances_are_all_kept() {
        let few = sample(0..MAX_SAMPLED as u64);
        let mut numbers: Vec<u64> = few.instances().iter().map(|it| it.number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, Vec::from_iter(0..MAX_SAMPLED as u64));
        assert_eq!(few.nearest(100 + 7 * 11 + 3).map(|it| it.number), Some(11));
        assert_eq!(InstanceSample::default().nearest(5), None);
    }

    #[test]
    fn a_sample_does_not_depend_on_the_order_of_merging() {
        let forwards = sample(0..5000);
        let mut halves = sample((2500..5000).rev());
        halves.join(&sample(0..2500));
        assert_eq!(forwards, halves);
    }

    /// The mean duration of a drift lies in its middle.
    #[test]
    fn the_representative_of_a_drift_lies_in_its_middle() {
        for count in [100u64, 1000, 10_000, 100_000] {
            let mean = 100 + 7 * (count - 1) / 2;
            let nearest = sample(0..count).nearest(mean).unwrap().number;
            let distance = nearest.abs_diff(count / 2) as f64 / count as f64;
            assert!(distance < 0.1, "{nearest} of {count}");
        }
    }
}
