//! Rewrites tool call identifiers into the form that a server accepts. An identifier that already
//! has the form is kept. Each form is injective: two calls of a conversation never share an
//! identifier.

use std::borrow::Cow;

use super::quirks::CallIdFormat;
use turnwright_types::hash::fnv1a;
use turnwright_types::ids::CallId;

/// The prefix of generated identifiers. A model's own identifier with this prefix is replaced,
/// because it could collide with a generated one.
const GENERATED_PREFIX: &str = "tw";
/// Generated `functions.NAME:N` identifiers start here, because models count their own calls from
/// 0.
const FIRST_GENERATED_NUMBER: u64 = 100_000;

/// The identifier of a call as it is sent: `provider_id` if it has the required form, otherwise a
/// generated one.
pub(super) fn wire_call_id<'a>(
    form: CallIdFormat,
    provider_id: &'a str,
    call: &CallId,
    name: &str,
) -> Cow<'a, str> {
    match form {
        CallIdFormat::Verbatim => provider_id.into(),
        CallIdFormat::Safe if is_safe(provider_id) => provider_id.into(),
        CallIdFormat::Safe => format!("{GENERATED_PREFIX}{}", base36(call_number(call), 1)).into(),
        CallIdFormat::Nine if is_nine_chars(provider_id) => provider_id.into(),
        CallIdFormat::Nine => format!("{GENERATED_PREFIX}{}", base36(call_number(call), 7)).into(),
        CallIdFormat::Functions if is_function_id(provider_id) => provider_id.into(),
        CallIdFormat::Functions => {
            format!("functions.{name}:{}", FIRST_GENERATED_NUMBER + call_number(call)).into()
        }
    }
}

fn is_safe(id: &str) -> bool {
    (1..=40).contains(&id.len())
        && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
        && !id.starts_with(GENERATED_PREFIX)
}

fn is_nine_chars(id: &str) -> bool {
    id.len() == 9
        && id.chars().all(|c| c.is_ascii_alphanumeric())
        && !id.starts_with(GENERATED_PREFIX)
}

fn is_function_id(id: &str) -> bool {
    let parts = id.strip_prefix("functions.").and_then(|rest| rest.rsplit_once(':'));
    parts.is_some_and(|(name, number)| {
        !name.is_empty() && number.parse::<u64>().is_ok_and(|value| value < FIRST_GENERATED_NUMBER)
    })
}

/// The number in turnwright's own call identifier, which is unique within the session.
fn call_number(call: &CallId) -> u64 {
    let digits = call.as_str().rsplit('-').next().unwrap_or_default();
    digits.parse().unwrap_or_else(|_| fnv1a(call.as_str().as_bytes()) % 36_u64.pow(7))
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
    fn valid_identifiers_are_kept_and_others_are_generated() {
        let table = [
            (CallIdFormat::Verbatim, "a/b", "a/b"),
            (CallIdFormat::Safe, "call_abc", "call_abc"),
            (CallIdFormat::Safe, "functions.f:0", "tw1d"),
            (CallIdFormat::Safe, "twx", "tw1d"),
            (CallIdFormat::Nine, "D681PevKs", "D681PevKs"),
            (CallIdFormat::Nine, "call_abc", "tw000001d"),
            (CallIdFormat::Nine, "tw000001c", "tw000001d"),
            (CallIdFormat::Functions, "functions.f:3", "functions.f:3"),
            (CallIdFormat::Functions, "functions.f:200000", "functions.f:100049"),
            (CallIdFormat::Functions, "call_abc", "functions.f:100049"),
        ];
        for (form, id, expected) in table {
            assert_eq!(wire_call_id(form, id, &"call-49".into(), "f"), expected, "{form:?} {id}");
        }
    }

    proptest! {
        #[test]
        fn identifiers_are_unique(
            ids in proptest::collection::hash_set("(tw0{0,6}[0-9a-z]{1,3}|[a-z.]{1,12}|functions\\.f:[0-9]{1,7}|[0-9a-zA-Z]{9})", 1..40),
        ) {
            for form in [CallIdFormat::Safe, CallIdFormat::Nine, CallIdFormat::Functions] {
                let mut seen = HashSet::new();
                for (number, id) in ids.iter().enumerate() {
                    let call = format!("call-{number}").into();
                    prop_assert!(seen.insert(wire_call_id(form, id, &call, "f").into_owned()));
                }
            }
        }
    }
}
