//! What the fuzzers call of the things that are private otherwise. Nothing of the program uses it.

use super::front_matter;

/// The name, the description and the arguments that a SKILL.md tells, and what follows them.
pub fn split(text: &str) -> ([Option<String>; 3], &str) {
    let (head, body) = front_matter::split(text);
    ([head.name, head.description, head.argument_hint], body)
}

/// The text with its arguments.
pub fn fill(text: &str, args: &str) -> String {
    super::fill::fill(text, args)
}
