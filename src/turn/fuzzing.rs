//! Access to private code for the fuzz targets. Not used by the program.

use super::partial_arguments::PartialArguments;
use crate::tools::COMMON_ARGUMENTS;

/// Feeds the arguments of a call in these pieces. Returns the fields that were reported, and the
/// long value as far as it is shown in the end.
pub fn partial_arguments<'a>(
    pieces: impl IntoIterator<Item = &'a str>,
) -> (Vec<(&'static str, String)>, Option<String>) {
    let mut arguments = PartialArguments::new(COMMON_ARGUMENTS);
    let found = pieces.into_iter().flat_map(|it| arguments.push(it));
    let found = found.map(|it| (it.0.name, it.1)).collect();
    let seen = arguments.long().and_then(|it| it.text.map(|text| format!("{:?}={text}", it.role)));
    (found, seen)
}
