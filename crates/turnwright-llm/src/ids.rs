//! The identifiers of calls, in the form that a server takes. Each form keeps what already has
//! it and is injective: two calls of a conversation never get the same one.

use std::borrow::Cow;

use super::quirks::Ids;
use turnwright_types::ids::CallId;

/// What those that are made here begin with. One that a model has made and that begins so is
/// made anew, or it could be the same as one of ours.
const OURS: &str = "tw";
/// Numbers of ours begin here: models count their own calls from 0.
const FUNCTIONS_FROM: u64 = 100_000;

/// The identifier of a call for the wire: `provider_id` if it will do.
pub(super) fn wire_id<'a>(
    form: Ids,
    provider_id: &'a str,
    call: &CallId,
    name: &str,
) -> Cow<'a, str> {
    match form {
        Ids::Verbatim => provider_id.into(),
        Ids::Safe if is_safe(provider_id) => provider_id.into(),
        Ids::Safe => format!("{OURS}{}", base36(number(call), 1)).into(),
        Ids::Nine if is_nine(provider_id) => provider_id.into(),
        Ids::Nine => format!("{OURS}{}", base36(number(call), 7)).into(),
        Ids::Functions if is_function(provider_id) => provider_id.into(),
        Ids::Functions => format!("functions.{name}:{}", FUNCTIONS_FROM + number(call)).into(),
    }
}

fn is_safe(id: &str) -> bool {
    let fits = |it: char| it.is_ascii_alphanumeric() || it == '_' || it == '-';
    (1..=40).contains(&id.len()) && id.chars().all(fits) && !id.starts_with(OURS)
}

fn is_nine(id: &str) -> bool {
    id.len() == 9 && id.chars().all(|it| it.is_ascii_alphanumeric()) && !id.starts_with(OURS)
}

fn is_function(id: &str) -> bool {
    let number = id.strip_prefix("functions.").and_then(|it| it.rsplit_once(':'));
    number.is_some_and(|(name, number)| {
        !name.is_empty() && number.parse::<u64>().is_ok_and(|it| it < FUNCTIONS_FROM)
    })
}

/// The number in our identifier, which is unique in its session.
fn number(call: &CallId) -> u64 {
    let digits = call.as_str().rsplit('-').next().unwrap_or_default();
    digits.parse().unwrap_or_else(|_| hash(call.as_str()) % 36_u64.pow(7))
}

/// FNV-1a, for identifiers that are not numbered.
fn hash(text: &str) -> u64 {
    let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

fn base36(mut number: u64, width: usize) -> String {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut digits = Vec::with_capacity(width);
    while number > 0 || digits.len() < width {
        digits.push(char::from(DIGITS[(number % 36) as usize]));
        number /= 36;
    }
    digits.iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_has_the_form_is_kept_and_the_rest_is_made() {
        let table = [
            (Ids::Verbatim, "a/b", "a/b"),
            (Ids::Safe, "call_abc", "call_abc"),
            (Ids::Safe, "functions.f:0", "tw1d"),
            (Ids::Safe, "twx", "tw1d"),
            (Ids::Nine, "D681PevKs", "D681PevKs"),
            (Ids::Nine, "call_abc", "tw000001d"),
            (Ids::Nine, "tw000001c", "tw000001d"),
            (Ids::Functions, "functions.f:3", "functions.f:3"),
            (Ids::Functions, "functions.f:200000", "functions.f:100049"),
            (Ids::Functions, "call_abc", "functions.f:100049"),
        ];
        for (form, id, expected) in table {
            assert_eq!(wire_id(form, id, &"call-49".into(), "f"), expected, "{form:?} {id}");
        }
    }

    proptest! {
        #[test]
        fn no_two_calls_get_the_same_one(
            ids in proptest::collection::hash_set("(tw0{0,6}[0-9a-z]{1,3}|[a-z.]{1,12}|functions\\.f:[0-9]{1,7}|[0-9a-zA-Z]{9})", 1..40),
        ) {
            for form in [Ids::Safe, Ids::Nine, Ids::Functions] {
                let mut seen = HashSet::new();
                for (number, id) in ids.iter().enumerate() {
                    let call = format!("call-{number}").into();
                    prop_assert!(seen.insert(wire_id(form, id, &call, "f").into_owned()));
                }
            }
        }
    }
}
