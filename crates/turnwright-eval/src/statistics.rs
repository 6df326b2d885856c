//! Intervals, an exact test and medians. Pure.

/// The 97.5th percentile of the normal distribution.
const Z: f64 = 1.959_964;

/// The Wilson interval in which the true rate lies with a probability of 95 %; `None` without trials.
pub fn wilson(passed: usize, trials: usize) -> Option<(f64, f64)> {
    if trials == 0 {
        return None;
    }
    let count = number(trials);
    let rate = number(passed) / count;
    let square = Z * Z;
    let center = rate + square / (2.0 * count);
    let spread = Z * (rate * (1.0 - rate) / count + square / (4.0 * count * count)).sqrt();
    let whole = 1.0 + square / count;
    Some((((center - spread) / whole).max(0.0), ((center + spread) / whole).min(1.0)))
}

/// Returns the probability that chance alone moves tasks so unevenly: the exact test of McNemar, two-sided.
pub fn mcnemar(to_one: usize, to_other: usize) -> f64 {
    let flips = to_one + to_other;
    let fewer = to_one.min(to_other);
    // Adds the binomial coefficients as parts of 2^flips, which does not overflow.
    let mut term = 0.5_f64.powi(i32::try_from(flips).unwrap_or(i32::MAX));
    let mut tail = term;
    for index in 0..fewer {
        term *= number(flips - index) / number(index + 1);
        tail += term;
    }
    (2.0 * tail).min(1.0)
}

/// The middle one of these values; `None` if there is none.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<_> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

/// A count of trials as a number to compute with.
#[expect(clippy::cast_precision_loss, reason = "there are not that many trials")]
pub(crate) fn number(count: usize) -> f64 {
    count as f64
}

/// A count of tokens or calls as a number to compute with.
#[expect(clippy::cast_precision_loss, reason = "it is shown rounded")]
pub(crate) fn whole(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_the_tables() {
        for (passed, trials, low, high) in [
            (3, 5, 23, 88),
            (5, 5, 57, 100),
            (0, 5, 0, 43),
            (6, 10, 31, 83),
            (12, 20, 39, 78),
            (30, 50, 46, 72),
            (60, 100, 50, 69),
        ] {
            let (from, to) = wilson(passed, trials).unwrap();
            let found = format!("{:.0}–{:.0}", from * 100.0, to * 100.0);
            assert_eq!(found, format!("{low}–{high}"), "{passed} of {trials}");
        }
        assert_eq!(wilson(0, 0), None);
    }

    #[test]
    fn flips_to_one_side_are_more_than_chance_from_six_on() {
        for (one, other, expected) in
            [(0, 0, 1.0), (0, 5, 0.0625), (0, 6, 0.031_25), (2, 3, 1.0), (1, 9, 0.021_484)]
        {
            let found = mcnemar(one, other);
            assert!((found - expected).abs() < 1e-5, "{one} {other}: {found}");
            assert!((found - mcnemar(other, one)).abs() < 1e-12);
        }
        assert!(mcnemar(0, 2_000) < 1e-6);
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0]), Some(3.0));
        assert_eq!(median([5.0, 1.0, 3.0]), Some(3.0));
        assert_eq!(median([4.0, 1.0, 3.0, 2.0]), Some(2.5));
    }
}
