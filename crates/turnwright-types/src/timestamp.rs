//! Formats and parses points in time: for programs in UTC, for people as the clocks around them show it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chrono::{
    DateTime, Datelike, Local, NaiveDate, NaiveDateTime, SecondsFormat, TimeDelta, TimeZone, Utc,
};

/// Formats a time in UTC as in RFC 3339, with seconds.
pub fn rfc3339(time: SystemTime) -> String {
    utc(time).to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// Like [`rfc3339`], with milliseconds.
pub fn rfc3339_millis(time: SystemTime) -> String {
    utc(time).to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// Formats a time in the time zone of this machine (`TZ` or the system's): `2026-11-01 13:30:05`.
pub fn local_time(time: SystemTime) -> String {
    time_in(&Local, time)
}

/// The day of a time in the time zone of this machine, with its name: `Sun, 01 Nov 2026`.
pub fn local_day(time: SystemTime) -> String {
    utc(time).with_timezone(&Local).format("%a, %d %b %Y").to_string()
}

/// Parses a length of time that a user has typed: `90s`, `10m` or `1h`.
pub fn parse_time_span(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let factor = match &text[digits.len()..] {
        "s" => 1,
        "m" | "min" => 60,
        "h" => 60 * 60,
        _ => return None,
    };
    let count = digits.parse::<u64>().ok().filter(|count| (1..=100_000).contains(count));
    count.map(|count| Duration::from_secs(count * factor))
}

/// Parses a time that a user has typed: a duration before `now` (`90s`, `15m`, `2h`, `3d`, `1w`), a
/// date, or a date and a time. It is a local time, as [`local_time`] shows it, or UTC with a `Z`.
pub fn parse_user_time(text: &str, now: SystemTime) -> Option<SystemTime> {
    parse_in(&Local, text.trim(), now)
}

fn time_in<Z: TimeZone>(zone: &Z, time: SystemTime) -> String {
    utc(time).with_timezone(zone).naive_local().format("%Y-%m-%d %H:%M:%S").to_string()
}

/// Times that no calendar has shows become the beginning of 1970.
fn utc(time: SystemTime) -> DateTime<Utc> {
    let elapsed = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(elapsed.as_secs()).unwrap_or_default();
    DateTime::from_timestamp(seconds, elapsed.subsec_nanos()).unwrap_or_default()
}

fn parse_in<Z: TimeZone>(zone: &Z, text: &str, now: SystemTime) -> Option<SystemTime> {
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
    let clock = text.trim_end_matches('Z').replacen('T', " ", 1);
    let shown = match NaiveDate::parse_from_str(&clock, "%Y-%m-%d") {
        Ok(date) => date.into(),
        Err(_) => ["%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M"]
            .iter()
            .find_map(|format| NaiveDateTime::parse_from_str(&clock, format).ok())?,
    };
    let time = if text.ends_with('Z') {
        shown.and_utc()
    } else {
        // A clock that is set forward skips an hour, in some places the one after midnight.
        let local = shown.and_local_timezone(zone.clone()).earliest();
        let time = local
            .or_else(|| (shown + TimeDelta::hours(1)).and_local_timezone(zone.clone()).earliest());
        time?.to_utc()
    };
    let seconds = u64::try_from(time.timestamp()).ok().filter(|_| time.year() < 10_000)?;
    Some(UNIX_EPOCH + Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use chrono::FixedOffset;

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
            assert_eq!(parse_in(&Utc, text, now).map(rfc3339).as_deref(), Some(expected), "{text}");
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

    #[test]
    fn people_see_and_type_the_time_of_their_zone() {
        let now = UNIX_EPOCH + Duration::from_secs(1_767_225_599);
        let india = FixedOffset::east_opt(5 * 3_600 + 1_800).unwrap();
        let alaska = FixedOffset::west_opt(9 * 3_600).unwrap();
        assert_eq!(time_in(&india, now), "2026-01-01 05:29:59");
        assert_eq!(time_in(&alaska, now), "2025-12-31 14:59:59");
        for (text, expected) in [
            ("2026-01-01 05:29:59", "2025-12-31T23:59:59Z"),
            ("2026-01-01", "2025-12-31T18:30:00Z"),
            ("2026-01-01T05:29Z", "2026-01-01T05:29:00Z"),
            ("1h", "2025-12-31T22:59:59Z"),
        ] {
            let parsed = parse_in(&india, text, now).map(rfc3339);
            assert_eq!(parsed.as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn a_time_that_no_calendar_has_is_formatted() {
        let far = UNIX_EPOCH + Duration::from_secs(1 << 62);
        assert_eq!(rfc3339(far), "1970-01-01T00:00:00Z");
        let early = UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(rfc3339(early), "1970-01-01T00:00:00Z");
    }
}
