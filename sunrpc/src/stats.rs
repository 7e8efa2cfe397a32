//! Counters: plain numbers that one thread keeps, and how others list them.
//!
//! A thread counts in plain fields, so counting costs an addition. Whoever wants to know asks the thread for a copy.
//! [`counters!`](crate::counters) makes the struct, its list of names and its sum of one definition, so that a new counter shows everywhere.

/// A counter's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// How often something happened; only grows.
    Count(u64),
    /// How much of something there is now.
    Gauge(u64),
    /// How values spread.
    Histogram(&'a Histogram),
}

/// What can list its counters.
pub trait Counters {
    /// Calls `f` with name and value of each counter, always in the same order.
    fn each<'a>(&'a self, f: &mut dyn FnMut(&'static str, Value<'a>));
}

/// What may be a field of [`counters!`](crate::counters).
pub trait Field {
    /// The value now.
    fn value(&self) -> Value<'_>;
    /// Adds what another thread counted.
    fn add(&mut self, other: &Self);
}

impl Field for u64 {
    fn value(&self) -> Value<'_> {
        Value::Count(*self)
    }

    fn add(&mut self, other: &Self) {
        *self += other;
    }
}

/// How much of something there is now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gauge(pub u64);

impl Field for Gauge {
    fn value(&self) -> Value<'_> {
        Value::Gauge(self.0)
    }

    fn add(&mut self, other: &Self) {
        self.0 += other.0;
    }
}

/// Buckets of a [`Histogram`].
pub const BUCKETS: usize = 32;

/// How values spread: bucket 0 counts zeros, bucket `i` values from `2^(i-1)` up to, not including, `2^i`. The last
/// bucket has no upper end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Histogram {
    buckets: [u64; BUCKETS],
    sum: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { buckets: [0; BUCKETS], sum: 0 }
    }
}

impl Histogram {
    /// Counts a value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        let i = (u64::BITS - value.leading_zeros()) as usize;
        if let Some(b) = self.buckets.get_mut(i.min(BUCKETS - 1)) {
            *b += 1;
        }
        self.sum = self.sum.saturating_add(value);
    }

    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Their sum; it stops at the largest number.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// How many values are in each bucket.
    pub fn buckets(&self) -> &[u64; BUCKETS] {
        &self.buckets
    }

    /// First value beyond bucket `i`; `None` for the last, which has no end.
    pub fn bound(i: usize) -> Option<u64> {
        (i < BUCKETS - 1).then(|| 1 << i)
    }
}

impl Field for Histogram {
    fn value(&self) -> Value<'_> {
        Value::Histogram(self)
    }

    fn add(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(other.buckets).for_each(|(b, o)| *b += o);
        self.sum = self.sum.saturating_add(other.sum);
    }
}

/// Defines a struct of counters, each a `u64`, a [`Gauge`] or a [`Histogram`]; with [`Counters`], `Default`, and an `add`
/// that sums threads.
///
/// ```
/// sunrpc::counters! {
///     /// Of one door.
///     pub struct DoorStats {
///         /// Openings.
///         pub opened: u64,
///         /// How long it stood open, in milliseconds.
///         pub open_ms: sunrpc::stats::Histogram,
///     }
/// }
/// let mut a = DoorStats::default();
/// a.opened += 1;
/// a.open_ms.record(12);
/// a.add(&a.clone());
/// assert_eq!((a.opened, a.open_ms.count()), (2, 2));
/// ```
#[macro_export]
macro_rules! counters {
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[$fmeta:meta])* $fvis:vis $field:ident: $ty:ty),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        $vis struct $name {
            $($(#[$fmeta])* $fvis $field: $ty),*
        }

        impl $name {
            /// Adds what another thread counted.
            $vis fn add(&mut self, other: &Self) {
                $($crate::stats::Field::add(&mut self.$field, &other.$field);)*
            }
        }

        impl $crate::stats::Counters for $name {
            fn each<'a>(&'a self, f: &mut dyn FnMut(&'static str, $crate::stats::Value<'a>)) {
                $(f(stringify!($field), $crate::stats::Field::value(&self.$field));)*
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    counters! {
        /// Some.
        struct Some {
            /// A.
            a: u64,
            /// B.
            b: Gauge,
            /// C.
            c: Histogram,
        }
    }

    #[test]
    fn every_field_is_listed_and_summed() {
        let mut one = Some { a: 1, b: Gauge(2), ..Some::default() };
        one.c.record(3);
        let mut sum = one;
        sum.add(&one);
        let mut listed = Vec::new();
        sum.each(&mut |name, v| listed.push((name, v)));
        assert_eq!(listed[..2], [("a", Value::Count(2)), ("b", Value::Gauge(4))]);
        assert!(matches!(listed[2], ("c", Value::Histogram(h)) if (h.count(), h.sum()) == (2, 6)));
    }

    #[test]
    fn buckets_end_at_powers_of_two() {
        let mut h = Histogram::default();
        [0, 1, 2, 3, 4, (1 << 30) - 1, 1 << 30, u64::MAX].into_iter().for_each(|v| h.record(v));
        assert_eq!(h.buckets()[..4], [1, 1, 2, 1]);
        assert_eq!((h.buckets()[30], h.buckets()[31], h.count()), (1, 2, 8));
        assert_eq!(h.sum(), u64::MAX);
        for v in [0u64, 1, 2, 3, 4, 1000, 1 << 29] {
            let mut h = Histogram::default();
            h.record(v);
            let i = h.buckets().iter().position(|n| *n > 0).unwrap();
            assert!(Histogram::bound(i).is_some_and(|end| v < end), "{v}");
            assert!(i == 0 || Histogram::bound(i - 1).is_some_and(|end| v >= end), "{v}");
        }
        assert_eq!(Histogram::bound(BUCKETS - 1), None);
    }
}
