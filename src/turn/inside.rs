//! What the fuzzers call of the things that are private otherwise. Nothing of the program uses it.

use super::glimpse::Glimpse;

/// Follows the arguments of a call that come in these pieces; returns what was told of them, and
/// what can be seen of a long value in the end.
pub fn glimpse<'a>(
    pieces: impl IntoIterator<Item = &'a str>,
) -> (Vec<(&'static str, String)>, Option<String>) {
    let mut glimpse = Glimpse::default();
    let found = pieces.into_iter().flat_map(|it| glimpse.push(it)).collect();
    let seen = glimpse.long().and_then(|it| it.text.map(|text| format!("{}={text}", it.key)));
    (found, seen)
}
