//! Maps tool names to names that every server accepts, `[A-Za-z0-9_-]{1,64}` (quirks C.4 #10b), and back, and
//! rewrites call identifiers into the form that a server accepts. Both are one-to-one: two tools never share a
//! name, and two calls of a conversation never share an identifier. What has the form already is kept.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use crate::quirks::CallIdFormat;
use turnwright_types::hash::{fnv1a, fnv1a_32};
use turnwright_types::ids::CallId;

const MAX_NAME_BYTES: usize = 64;
/// An underscore and eight hexadecimal digits.
const HASH_SUFFIX_BYTES: usize = 9;
/// The prefix of generated identifiers. A model's own identifier with this prefix is replaced,
/// because it could collide with a generated one.
const GENERATED_PREFIX: &str = "tw";
/// Generated `functions.NAME:N` identifiers start here, because models count their own calls from
/// 0.
const FIRST_GENERATED_NUMBER: u64 = 100_000;

/// The aliases of names that are not valid as they are. Empty, without allocation, if all names are
/// valid.
#[derive(Clone, Debug, Default)]
pub(super) struct ToolAliases {
    to_wire: HashMap<String, String>,
    from_wire: HashMap<String, String>,
}

impl ToolAliases {
    /// Chooses an alias for each declared name that needs one, independently of the order of the
    /// names.
    pub(super) fn new<'a, I>(declared: I) -> ToolAliases
    where
        I: IntoIterator<Item = &'a str, IntoIter: Clone>,
    {
        let declared = declared.into_iter();
        let mut changed: Vec<&str> = declared.clone().filter(|name| !is_valid(name)).collect();
        if changed.is_empty() {
            return ToolAliases::default();
        }
        changed.sort_unstable();
        changed.dedup();
        let mut taken: HashSet<String> =
            declared.filter(|name| is_valid(name)).map(str::to_owned).collect();
        let mut candidates: HashMap<String, usize> = HashMap::new();
        for name in &changed {
            *candidates.entry(sanitised(name)).or_default() += 1;
        }
        let mut aliases = ToolAliases::default();
        for name in changed {
            let plain = sanitised(name);
            let is_unambiguous =
                candidates[&plain] == 1 && has_alphanumeric(name) && name.len() <= MAX_NAME_BYTES;
            let mut alias = plain;
            let mut attempt = 0;
            while !is_unambiguous && attempt == 0 || taken.contains(&alias) {
                alias = hashed(name, attempt);
                attempt += 1;
            }
            taken.insert(alias.clone());
            aliases.from_wire.insert(alias.clone(), name.to_owned());
            aliases.to_wire.insert(name.to_owned(), alias);
        }
        aliases
    }

    /// The name as it is sent. An undeclared name, which a model made up in an earlier reply,
    /// becomes a valid one.
    pub(super) fn to_wire<'a>(&'a self, name: &'a str) -> Cow<'a, str> {
        if is_valid(name) {
            return Cow::Borrowed(name);
        }
        match self.to_wire.get(name) {
            Some(alias) => Cow::Borrowed(alias),
            None if name.len() > MAX_NAME_BYTES => Cow::Owned(hashed(name, 0)),
            None => Cow::Owned(sanitised(name)),
        }
    }

    /// The declared name for a name used by the model.
    #[expect(clippy::wrong_self_convention, reason = "the other way of `to_wire`")]
    pub(super) fn from_wire<'a>(&'a self, name: &'a str) -> &'a str {
        self.from_wire.get(name).map_or(name, String::as_str)
    }
}

fn is_allowed(char: char) -> bool {
    char.is_ascii_alphanumeric() || matches!(char, '_' | '-')
}

fn is_valid(name: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.chars().all(is_allowed)
}

/// True if sanitising the name leaves anything that identifies it.
fn has_alphanumeric(name: &str) -> bool {
    name.contains(|c: char| c.is_ascii_alphanumeric())
}

fn sanitised(name: &str) -> String {
    if name.is_empty() {
        return "unknown".to_owned();
    }
    let allowed = name.chars().map(|c| if is_allowed(c) { c } else { '_' });
    allowed.take(MAX_NAME_BYTES).collect()
}

fn hashed(name: &str, attempt: u32) -> String {
    let mut alias = sanitised(name);
    alias.truncate(MAX_NAME_BYTES - HASH_SUFFIX_BYTES);
    let hash = fnv1a_32(name.as_bytes().iter().chain(&attempt.to_le_bytes()));
    alias.push_str(&format!("_{hash:08x}"));
    alias
}

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
    use proptest::prelude::*;

    use super::*;

    fn aliases(names: &[&str]) -> ToolAliases {
        ToolAliases::new(names.iter().copied())
    }

    #[test]
    fn valid_names_map_to_themselves_without_allocation() {
        let aliases = aliases(&["read_file", "a-B-9", &"x".repeat(64)]);
        assert!(matches!(aliases.to_wire("read_file"), Cow::Borrowed("read_file")));
        assert_eq!(aliases.from_wire("read_file"), "read_file");
        assert_eq!(aliases.to_wire.capacity() + aliases.from_wire.capacity(), 0);
    }

    #[test]
    fn names_change_no_more_than_necessary() {
        let long = "x".repeat(70);
        for (declared, name, alias) in [
            (vec!["mcp.fs/read"], "mcp.fs/read", "mcp_fs_read"),
            (vec!["a:b", "a_c"], "a:b", "a_b"),
            (vec!["a:b", "a_b"], "a:b", "a_b_1f609940"),
            (vec!["a:b", "a_b"], "a_b", "a_b"),
            (vec!["a:b", "a.b"], "a:b", "a_b_1f609940"),
            (vec!["a.b", "a:b"], "a.b", "a_b_68a939cc"),
            (vec!["読む"], "読む", "___ac0392dd"),
            (vec![""], "", "unknown_4b95f515"),
            (vec![&long], &long, &format!("{}_a742244d", "x".repeat(55))),
        ] {
            let aliases = aliases(&declared);
            assert_eq!(aliases.to_wire(name), alias, "{declared:?}");
            assert_eq!(aliases.from_wire(alias), name, "{declared:?}");
        }
    }

    #[test]
    fn undeclared_names_become_valid() {
        let aliases = aliases(&["a.b"]);
        for (name, wire) in [("", "unknown"), ("x y", "x_y"), ("fine", "fine"), ("é", "_")] {
            assert_eq!(aliases.to_wire(name), wire);
        }
        let long = "y".repeat(500);
        assert!(is_valid(&aliases.to_wire(&long)));
        assert_eq!(aliases.from_wire("other"), "other");
    }

    proptest! {
        #[test]
        fn aliases_are_unique_and_reversible(
            names in prop::collection::vec("[ab._:é]{0,3}|[ab.]{60,70}|a_b(_[0-9a-f]{8})?", 0..12),
            other in "\\PC{0,80}",
        ) {
            let aliases = ToolAliases::new(names.iter().map(String::as_str));
            let distinct: HashSet<&String> = names.iter().collect();
            let wire: HashSet<Cow<'_, str>> = distinct.iter().map(|name| aliases.to_wire(name)).collect();
            prop_assert_eq!(wire.len(), distinct.len());
            for name in &names {
                let alias = aliases.to_wire(name);
                prop_assert!(is_valid(&alias), "{}", alias);
                prop_assert_eq!(aliases.from_wire(&alias), name);
            }
            prop_assert!(is_valid(&aliases.to_wire(&other)));
            let backwards = ToolAliases::new(names.iter().rev().map(String::as_str));
            prop_assert_eq!(backwards.to_wire, aliases.to_wire);
        }
    }

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
