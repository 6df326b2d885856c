//! Parses how long a server asks clients to wait, in all known forms. Does no I/O.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest::header::{DATE, HeaderMap};
use serde_json::Value;

use super::has_any;

/// The longest delay that a server can impose; for longer ones the turn ends with the error.
pub const MAX_RETRY_WAIT: Duration = Duration::from_secs(60);

/// Numbers above the first of these are Unix timestamps in milliseconds, those above the second in seconds.
const MIN_EPOCH_MILLISECONDS: f64 = 1e11;
const MIN_EPOCH_SECONDS: f64 = 1e9;

/// Phrases that precede a delay in an error message.
const PHRASES: [&str; 8] = [
    "try again in ",
    "try again after ",
    "retry in ",
    "retry after ",
    "reset in ",
    "resets in ",
    "reset after ",
    "wait ",
];

/// Words of error messages that name the date from which requests are accepted again.
const DATE_WORDS: [&str; 6] = ["reset", "重置", "again", "retry", "regain", "until"];

/// The server's time, if the response states it: the clock here may be wrong.
pub(crate) fn server_time(headers: &HeaderMap, now: SystemTime) -> SystemTime {
    let date =
        headers.get(DATE).and_then(|value| httpdate::parse_http_date(value.to_str().ok()?).ok());
    date.unwrap_or(now)
}

/// The prefix of the headers that LiteLLM relays.
const RELAYED: &str = "llm_provider-";

/// The delay in the headers: `Retry-After` takes precedence over vendor headers.
pub(crate) fn from_headers(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    from_retry_after(headers, "", now)
        .or_else(|| from_retry_after(headers, RELAYED, now))
        .or_else(|| from_rate_limit_headers(headers, now))
}

/// The delay of `retry-after-ms` or `Retry-After`, in headers whose names have this prefix.
fn from_retry_after(headers: &HeaderMap, prefix: &str, now: SystemTime) -> Option<Duration> {
    let text = |name: &str| headers.get(format!("{prefix}{name}"))?.to_str().ok();
    let milliseconds = text("retry-after-ms").and_then(|value| value.trim().parse().ok());
    milliseconds
        .and_then(|number: f64| checked_seconds(number / 1000.0))
        .or_else(|| parse_delay_or_date(text("retry-after")?.trim(), now))
}

/// The delay of rate limit headers, which exist for several limits, such as requests and tokens. If
/// the server reports what remains of the limits, only exhausted ones count.
fn from_rate_limit_headers(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let mut exhausted = None;
    let mut unknown: Option<Duration> = None;
    let mut has_remaining = false;
    for (name, value) in headers {
        let name = name.as_str();
        if !name.contains("ratelimit") || !name.contains("reset") {
            continue;
        }
        let wait = value.to_str().ok().and_then(|text| parse_delay_or_date(text.trim(), now));
        let left = headers.get(name.replace("reset", "remaining"));
        match left.and_then(|value| value.to_str().ok()?.trim().parse::<f64>().ok()) {
            Some(left) => {
                has_remaining = true;
                if left <= 0.0 {
                    exhausted = exhausted.max(wait);
                }
            }
            // It is unknown which limit was hit: take the shortest delay, since the wait can be
            // repeated.
            None => unknown = unknown.into_iter().chain(wait).min(),
        }
    }
    if has_remaining { exhausted } else { unknown }
}

/// The delay in an error's body, in a field or in its message.
pub(crate) fn from_body(body: &Value, message: &str, now: SystemTime) -> Option<Duration> {
    from_fields(body, now).or_else(|| from_message(message, now))
}

/// Google's `retryDelay` and similar fields.
fn from_fields(value: &Value, now: SystemTime) -> Option<Duration> {
    const DELAY_FIELDS: &str = "retryDelay retry_after retry_after_seconds resets_in_seconds quotaResetDelay \
                                resets_at reset_at X-RateLimit-Reset";
    match value {
        Value::Array(items) => items.iter().find_map(|item| from_fields(item, now)),
        Value::Object(fields) => {
            let mut stated = DELAY_FIELDS.split(' ').filter_map(|field| fields.get(field));
            let found = stated.find_map(|delay| match delay {
                Value::String(text) => parse_delay_or_date(text, now),
                other => parse_delay_or_date(&other.as_f64()?.to_string(), now),
            });
            found.or_else(|| {
                ["error", "details", "metadata", "headers"]
                    .iter()
                    .filter_map(|field| fields.get(*field))
                    .find_map(|inner| from_fields(inner, now))
            })
        }
        _ => None,
    }
}

fn from_message(message: &str, now: SystemTime) -> Option<Duration> {
    let text = message.to_ascii_lowercase();
    let names_date = has_any(&text, &DATE_WORDS);
    // Zhipu's times are Beijing time, in both of its languages.
    let is_zhipu = text.contains("your limit will reset at ") || text.contains("重置");
    let offset_hours = if is_zhipu { 8 } else { 0 };
    let starts = text.match_indices(['1', '2']).filter(|_| names_date);
    let mut dates = starts.filter_map(|(at, _)| parse_date(&text[at..], offset_hours));
    // A date in the past is not a reset.
    let wait = dates.find_map(|date| date.duration_since(now).ok());
    wait.or_else(|| {
        PHRASES.iter().find_map(|phrase| {
            let after = text[text.find(phrase)? + phrase.len()..].trim_start_matches("for ");
            // A date in the past is not a number of seconds.
            parse_duration(after).filter(|_| parse_date(after, 0).is_none())
        })
    })
}

/// Parses a value that is a duration, a timestamp or a date.
fn parse_delay_or_date(value: &str, now: SystemTime) -> Option<Duration> {
    if let Ok(number) = value.parse::<f64>() {
        let epoch_seconds = match number {
            number if number > MIN_EPOCH_MILLISECONDS => number / 1000.0,
            number if number > MIN_EPOCH_SECONDS => number,
            number => return checked_seconds(number),
        };
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        return Some(checked_seconds(epoch_seconds)?.saturating_sub(now));
    }
    let date = httpdate::parse_http_date(value).ok().or_else(|| parse_date(value, 0));
    match date {
        Some(date) => Some(date.duration_since(now).unwrap_or_default()),
        None => parse_duration(value),
    }
}

/// Parses `1.57s`, `6m0s`, `120ms` or `5 seconds` at the start of a text; a bare number is seconds.
fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim_start();
    let mut total = None;
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let Ok(number) = rest[..digits].trim_end_matches('.').parse::<f64>() else { break };
        rest = rest[digits..].trim_start();
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let factor = seconds_per_unit(&rest[..letters]);
        if factor.is_none() && total.is_some() {
            break;
        }
        let part = checked_seconds(number * factor.unwrap_or(1.0))?;
        total = Some(total.unwrap_or(Duration::ZERO).saturating_add(part));
        if factor.is_none() {
            break;
        }
        rest = rest[letters..].trim_start();
    }
    total
}

fn seconds_per_unit(word: &str) -> Option<f64> {
    match word {
        "ms" | "millisecond" | "milliseconds" => Some(0.001),
        "s" | "sec" | "secs" | "second" | "seconds" => Some(1.0),
        "m" | "min" | "mins" | "minute" | "minutes" => Some(60.0),
        "h" | "hour" | "hours" => Some(3600.0),
        "d" | "day" | "days" => Some(86_400.0),
        _ => None,
    }
}

/// `None` for a number that is not a duration, such as a negative one.
fn checked_seconds(number: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(number).ok()
}

/// Parses a date with a time at the start of a text: `2026-01-02T03:04:05.678Z`, also with an offset, a space
/// or `at` in between, or without seconds. Without a zone, the date has the given offset from UTC.
fn parse_date(text: &str, offset_hours: i64) -> Option<SystemTime> {
    let (year, rest) = leading_number(text, 4)?;
    let (month, rest) = leading_number(rest.strip_prefix('-')?, 2)?;
    let (day, rest) = leading_number(rest.strip_prefix('-')?, 2)?;
    let rest = [" at ", " ", "T", "t"].iter().find_map(|mark| rest.strip_prefix(mark))?;
    let (hour, rest) = leading_number(rest, 2)?;
    let (minute, mut rest) = leading_number(rest.strip_prefix(':')?, 2)?;
    let mut second = 0;
    if let Some((number, after)) = rest.strip_prefix(':').and_then(|text| leading_number(text, 2)) {
        second = number;
        rest = after;
    }
    let zone =
        rest.trim_start_matches(|next: char| next == '.' || next.is_ascii_digit() || next == ' ');
    let is_utc = ["z", "Z", "utc", "UTC", "gmt", "GMT"].iter().any(|word| zone.starts_with(word));
    let offset = match zone.as_bytes().first() {
        Some(sign @ (b'+' | b'-')) => {
            let (hours, rest) = leading_number(&zone[1..], 2)?;
            let minutes =
                leading_number(rest.trim_start_matches(':'), 2).map_or(0, |(number, _)| number);
            let minutes = i64::from((hours * 60 + minutes.min(59)).min(1440));
            if *sign == b'+' { minutes } else { -minutes }
        }
        _ if is_utc => 0,
        _ => offset_hours * 60,
    };
    let days = i64::from(days_since_1970(year, month, day)?);
    let clock = i64::from(hour.min(23) * 3600 + minute.min(59) * 60 + second.min(60));
    let since = u64::try_from(days * 86_400 + clock - offset * 60).ok()?;
    UNIX_EPOCH.checked_add(Duration::from_secs(since))
}

/// The number with this many digits at the start of a text, and the rest of the text.
fn leading_number(text: &str, digits: usize) -> Option<(u32, &str)> {
    let (number, rest) = text.split_at_checked(digits)?;
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    Some((number.parse().ok().filter(|_| is_number)?, rest))
}

fn days_since_1970(year: u32, month: u32, day: u32) -> Option<u32> {
    const DAYS_BEFORE_MONTH: [u32; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let before = DAYS_BEFORE_MONTH.get(usize::try_from(month.checked_sub(1)?).ok()?)?;
    let is_leap = leap_days(year) > leap_days(year.checked_sub(1)?);
    let day_of_year = u32::from(is_leap && month > 2) + before + day.min(31).checked_sub(1)?;
    Some(year.checked_sub(1970)? * 365 + leap_days(year - 1) - leap_days(1969) + day_of_year)
}

/// The number of leap days from the year 1 to the end of this year.
fn leap_days(year: u32) -> u32 {
    year / 4 - year / 100 + year / 400
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use reqwest::header::{HeaderName, HeaderValue};
    use serde_json::json;

    use super::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT.
    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(784_111_777)
    }

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let parsed = pairs.iter().map(|(name, value)| {
            (HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap())
        });
        parsed.collect()
    }

    /// Quirk C.1 #39.
    #[test]
    fn delays_are_parsed_in_each_form() {
        let table = [
            ("retry-after", "7", Some(7_000)),
            ("retry-after", "0.5", Some(500)),
            ("retry-after", "Sun, 06 Nov 1994 08:49:47 GMT", Some(10_000)),
            ("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("retry-after", "2073600", Some(2_073_600_000)),
            ("retry-after", "soon", None),
            ("retry-after", "-1", None),
            ("retry-after-ms", "250", Some(250)),
            ("llm_provider-retry-after", "7", Some(7_000)),
            ("llm_provider-retry-after-ms", "250", Some(250)),
            ("llm_provider-x-ratelimit-reset-requests", "1.57s", Some(1_570)),
            ("x-ratelimit-reset-requests", "1.57s", Some(1_570)),
            ("x-ratelimit-reset-tokens", "6m0s", Some(360_000)),
            ("x-ratelimit-reset-tokens", "120ms", Some(120)),
            ("x-ratelimit-reset-requests", "1h2m3.5s", Some(3_723_500)),
            ("ratelimit-reset", "30", Some(30_000)),
            ("anthropic-ratelimit-tokens-reset", "1994-11-06T08:49:47Z", Some(10_000)),
            ("anthropic-ratelimit-tokens-reset", "1994-11-06T09:49:47.25+01:00", Some(10_000)),
            ("anthropic-ratelimit-tokens-reset", "1994-11-06T00:00:00Z", Some(0)),
            ("x-ratelimit-limit-requests", "30", None),
        ];
        for (name, value, expected) in table {
            let got = from_headers(&headers(&[(name, value)]), now());
            assert_eq!(got, expected.map(Duration::from_millis), "{name}: {value}");
        }
    }

    #[test]
    fn a_timestamp_may_be_in_seconds_or_milliseconds() {
        let now = UNIX_EPOCH + Duration::from_secs(1_760_000_000);
        for value in ["1760000009", "1760000009000", "2025-10-09T08:53:29Z"] {
            let got = from_headers(&headers(&[("x-ratelimit-reset", value)]), now);
            assert_eq!(got, Some(Duration::from_secs(9)), "{value}");
        }
    }

    /// The server's clock counts, even if ours is two minutes slow.
    #[test]
    fn a_date_counts_from_that_of_the_response() {
        let local = now() - Duration::from_secs(120);
        let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        for (name, value) in [
            ("retry-after", "Sun, 06 Nov 1994 08:49:47 GMT"),
            ("anthropic-ratelimit-tokens-reset", "1994-11-06T08:49:47Z"),
        ] {
            let headers = headers(&[(name, value), date]);
            let got = from_headers(&headers, server_time(&headers, local));
            assert_eq!(got, Some(Duration::from_secs(10)), "{name}");
        }
        assert_eq!(server_time(&headers(&[("date", "soon")]), local), local);
        assert_eq!(server_time(&headers(&[]), local), local);
    }

    #[test]
    fn only_exhausted_limits_count() {
        let with = |requests: &str, tokens: &str| {
            let headers = headers(&[
                ("x-ratelimit-reset-requests", "1.5s"),
                ("x-ratelimit-reset-tokens", "40s"),
                ("x-ratelimit-remaining-requests", requests),
                ("x-ratelimit-remaining-tokens", tokens),
            ]);
            from_headers(&headers, now())
        };
        assert_eq!(with("0", "17"), Some(Duration::from_millis(1_500)));
        assert_eq!(with("3", "0"), Some(Duration::from_secs(40)));
        assert_eq!(with("0", "0"), Some(Duration::from_secs(40)));
        assert_eq!(with("3", "17"), None);
        let explicit = headers(&[("retry-after", "2"), ("x-ratelimit-reset-tokens", "40s")]);
        assert_eq!(from_headers(&explicit, now()), Some(Duration::from_secs(2)));
    }

    #[test]
    fn an_error_message_may_contain_the_delay() {
        let table = [
            ("Rate limit reached. Please try again in 20s.", Some(20_000)),
            ("Please try again in 7m12.5s. Need more tokens?", Some(432_500)),
            ("Quota exceeded for metric x, limit: 15\nPlease retry in 34.07s.", Some(34_070)),
            ("Please retry after 5 seconds.", Some(5_000)),
            ("max RPM: 3, please try again after 1 seconds", Some(1_000)),
            ("Try again in 120ms", Some(120)),
            ("Please wait 2 minutes", Some(120_000)),
            ("please retry after 3.", Some(3_000)),
            ("Your quota will reset after 5h37m11s.", Some(20_231_000)),
            ("Limit reached. It resets at 1994-11-06T08:49:47Z", Some(10_000)),
            ("You will regain access on 1994-11-07 at 00:00 UTC.", Some(54_623_000)),
            ("Please try again after 1994-11-06 10:49:47 +0200", Some(10_000)),
            ("Blocked until 1994-11-06 08:49:47", Some(10_000)),
            // Zhipu's clock is that of Beijing.
            ("Usage limit reached. Your limit will reset at 1994-11-06 16:49:47", Some(10_000)),
            ("已达到使用上限。您的限额将在 1994-11-06 16:49:47 重置。", Some(10_000)),
            ("Your limit was reset at 1994-11-05T00:00:00Z. Try again in 5s", Some(5_000)),
            ("Retry after 1994-11-06T08:00:00Z", None),
            ("It failed at 1994-11-06T08:49:47Z", None),
            ("Try again in a while", None),
            ("Try again later", None),
        ];
        for (text, expected) in table {
            let got = from_body(&Value::Null, text, now());
            assert_eq!(got, expected.map(Duration::from_millis), "{text}");
        }
        let google = json!([{ "error": { "details": [
            { "@type": "type.googleapis.com/google.rpc.Help" },
            { "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s" },
        ] } }]);
        assert_eq!(from_body(&google, "", now()), Some(Duration::from_secs(34)));
        for (body, expected) in [
            (json!({ "error": { "resets_in_seconds": 1_234 } }), 1_234),
            (json!({ "error": { "details": [{ "quotaResetDelay": "2h15m" }] } }), 8_100),
            (json!({ "error": { "metadata": { "headers": { "X-RateLimit-Reset": "9" } } } }), 9),
        ] {
            assert_eq!(from_body(&body, "", now()), Some(Duration::from_secs(expected)), "{body}");
        }
        let body = json!({ "resets_at": 1_760_000_009 });
        let now = UNIX_EPOCH + Duration::from_secs(1_760_000_000);
        assert_eq!(from_body(&body, "", now), Some(Duration::from_secs(9)));
    }

    proptest! {
        /// A `Duration` cannot be negative, so this only checks that nothing panics.
        #[test]
        fn no_text_makes_it_panic(
            text in "(try again in |reset at 20)?[-+0-9a-zA-ZäTZ:. ]{0,30}", free in any::<String>(),
            number in any::<f64>(),
        ) {
            for value in [text, free, number.to_string()] {
                let _ = (parse_delay_or_date(&value, now()), parse_duration(&value), parse_date(&value, 8));
                from_body(&json!({ "retryDelay": value, "retry_after": number }), &value, now());
                if let Ok(value) = HeaderValue::from_str(&value) {
                    for name in ["retry-after", "retry-after-ms", "x-ratelimit-reset"] {
                        let mut headers = HeaderMap::new();
                        headers.insert(name, value.clone());
                        from_headers(&headers, now());
                    }
                }
            }
        }

        #[test]
        fn dates_round_trip(since in 0_u64..7_000_000_000) {
            let date = UNIX_EPOCH + Duration::from_secs(since);
            // `Sun, 06 Nov 1994 08:49:37 GMT`
            let http = httpdate::fmt_http_date(date);
            let months = "JanFebMarAprMayJunJulAugSepOctNovDec";
            let month = months.find(&http[8..11]).unwrap() / 3 + 1;
            let text = format!(
                "{}-{month:02}-{}T{}Z", &http[12..16], &http[5..7], &http[17..25],
            );
            prop_assert_eq!(parse_date(&text, 8), Some(date), "{}", text);
        }
    }
}
