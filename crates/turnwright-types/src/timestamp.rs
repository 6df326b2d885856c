//! Formats and parses points in time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Formats a time in UTC as in RFC 3339, with seconds.
pub fn rfc3339(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |it| it.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years are counted from March, so that the leap day is the last day; day 0 is 1 March 0000.
    let day_number = days + 719_468;
    let (era, day_of_era) = (day_number / 146_097, day_number % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Like [`rfc3339`], with milliseconds.
pub fn rfc3339_millis(time: SystemTime) -> String {
    let millis = time.duration_since(UNIX_EPOCH).map_or(0, |it| it.subsec_millis());
    let text = rfc3339(time);
    format!("{}.{millis:03}Z", text.trim_end_matches('Z'))
}

/// Parses a time that a user has typed: a duration before `now` (`90s`, `15m`, `2h`, `3d`, `1w`), a
/// date, or a date and a time in UTC.
pub fn parse_user_time(text: &str, now: SystemTime) -> Option<SystemTime> {
    let text = text.trim();
    if let Some(unit) = text.chars().last().filter(char::is_ascii_lowercase) {
        let seconds_per_unit = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3_600,
            'd' => 86_400,
            'w' => 604_800,
            _ => return None,
        };
        let count: u64 = text.strip_suffix(unit)?.parse().ok()?;
        return now.checked_sub(Duration::from_secs(count.checked_mul(seconds_per_unit)?));
    }
    let (day, time) = text.trim_end_matches('Z').split_once(['T', ' ']).unwrap_or((text, "0:0"));
    let mut day = day.split('-').map(str::parse::<u64>);
    let (year, month, day) = (day.next()?.ok()?, day.next()?.ok()?, day.next()?.ok()?);
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let date = format!("{year:04}-{month:02}-{day:02}");
    let mut seconds = 0;
    for ((unit, limit), part) in [(3_600, 24), (60, 60), (1, 60)].into_iter().zip(time.split(':')) {
        let whole = part.split('.').next()?.parse::<u64>().ok().filter(|it| *it < limit)?;
        seconds += unit * whole;
    }
    // The inverse of the calculation in `rfc3339`.
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    let seconds = days.checked_sub(719_468)? * 86_400 + seconds;
    let time = UNIX_EPOCH + Duration::from_secs(seconds);
    // A day that the month does not have would be one of the next month.
    rfc3339(time).starts_with(&date).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_as_in_rfc_3339() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_799, "2000-02-29T23:59:59Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
        }
    }

    #[test]
    fn a_date_a_date_and_time_or_an_age_is_parsed() {
        let now = UNIX_EPOCH + Duration::from_secs(1_767_225_599);
        for (text, expected) in [
            ("90s", "2025-12-31T23:58:29Z"),
            ("2h", "2025-12-31T21:59:59Z"),
            ("1w", "2025-12-24T23:59:59Z"),
            ("2000-02-29", "2000-02-29T00:00:00Z"),
            ("2000-03-01T01:02", "2000-03-01T01:02:00Z"),
            ("2025-12-31 23:59:59", "2025-12-31T23:59:59Z"),
            ("2025-12-31T23:59:59.999Z", "2025-12-31T23:59:59Z"),
        ] {
            assert_eq!(
                parse_user_time(text, now).map(rfc3339).as_deref(),
                Some(expected),
                "{text}"
            );
        }
        for text in ["", "h", "2y", "yesterday", "2025-13-01", "2025-02-29", "2025-01-01T24:00"] {
            assert_eq!(parse_user_time(text, now), None, "{text}");
        }
        for text in ["2025-01", "1969-12-31", "1e9d"] {
            assert_eq!(parse_user_time(text, now), None, "{text}");
        }
        let time = UNIX_EPOCH + Duration::from_millis(1_007);
        assert_eq!(rfc3339_millis(time), "1970-01-01T00:00:01.007Z");
    }
}
