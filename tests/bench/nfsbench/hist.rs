//! Latency histogram: constant memory, error below 1/256 of the value.

/// Sub-buckets of each power of two, as a power of two.
const SUB_BITS: u32 = 8;
const SUB: usize = 1 << SUB_BITS;
/// Values from 2^42 ns (73 minutes) on fall into the last bucket.
const BUCKETS: usize = (42 - SUB_BITS as usize + 1) * SUB;

/// Counts of nanosecond values in log-linear buckets.
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Histogram {
    /// An empty histogram.
    pub(crate) fn new() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0 }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.counts.fill(0);
        self.total = 0;
    }

    /// Counts one value.
    #[inline]
    pub(crate) fn add(&mut self, ns: u64) {
        if let Some(n) = self.counts.get_mut(index(ns).min(BUCKETS - 1)) {
            *n += 1;
        }
        self.total += 1;
    }

    /// The value below which the fraction `q` of all values lies, in microseconds; 0 without values.
    pub(crate) fn quantile_us(&self, q: f64) -> f64 {
        let rank = ((self.total as f64 * q).ceil() as u64).max(1);
        let mut seen = 0;
        for (i, n) in self.counts.iter().enumerate() {
            seen += n;
            if *n > 0 && seen >= rank {
                return middle(i) / 1e3;
            }
        }
        0.0
    }
}

#[inline]
fn index(ns: u64) -> usize {
    let exp = (63 - (ns | 1).leading_zeros()).saturating_sub(SUB_BITS);
    (exp as usize) * SUB + (ns >> exp) as usize
}

/// Middle of bucket `i`, in nanoseconds.
fn middle(i: usize) -> f64 {
    if i < 2 * SUB {
        return i as f64;
    }
    let exp = i / SUB - 1;
    let low = ((i - exp * SUB) as u64) << exp;
    low as f64 + (1u64 << exp) as f64 / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_near_the_middle_of_its_bucket() {
        for ns in (0..5000).chain((0..40).map(|b| (1u64 << b) + 12345 % (1 << b))) {
            let m = middle(index(ns));
            assert!((m - ns as f64).abs() <= ns as f64 / 256.0 + 0.5, "{ns} in a bucket around {m}");
        }
    }

    #[test]
    fn quantiles_of_a_uniform_sample() {
        let mut h = Histogram::new();
        (1..=100_000).for_each(|v| h.add(v));
        assert!((h.quantile_us(0.5) - 50.0).abs() < 1.0);
        assert!((h.quantile_us(0.99) - 99.0).abs() < 2.0);
        h.add(u64::MAX);
        h.clear();
        assert_eq!(h.quantile_us(0.5), 0.0);
    }
}
