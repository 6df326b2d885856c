//! Private functions of this module for the fuzz targets. The program does not use them.

use super::front_matter;

/// The name, description and argument hint of a SKILL.md, and its body.
pub fn split(text: &str) -> ([Option<String>; 3], &str) {
    let (head, body) = front_matter::split(text);
    ([head.name, head.description, head.argument_hint], body)
}

pub fn substitute(text: &str, args: &str) -> String {
    super::arguments::substitute(text, args)
}
