//! The names of tools, as models can have them: `mcp__SERVER__TOOL`, of letters, digits, `_` and
//! `-`, 64 at most, and each once. A name that was given stays with its tool as long as the session
//! lasts, whatever comes and goes beside it.

use std::collections::{HashMap, HashSet};

use ring::digest::{SHA256, digest};

use turnwright_types::ids::hex;

/// The longest name of a function that all providers take.
const LONGEST: usize = 64;
/// What is left of a server's name where both do not fit.
const LONGEST_SERVER: usize = 20;
/// What tells names apart that would be the same.
const SUFFIX: usize = 8;
/// Names that are remembered. More tools than that no session has, unless a server makes them up.
const MOST: usize = 10_000;

/// The names of one session.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// For a server and its tool.
    given: HashMap<(String, String), String>,
    taken: HashSet<String>,
}

impl Names {
    /// The name of a server's tool. Nearly always it follows from the two names alone, so that it is
    /// the same in every session.
    pub(super) fn of(&mut self, server: &str, tool: &str) -> String {
        let key = (server.to_owned(), tool.to_owned());
        if let Some(name) = self.given.get(&key) {
            return name.clone();
        }
        if self.given.len() >= MOST {
            *self = Names::default();
        }
        let mut name = name(server, tool);
        for salt in 1_u32.. {
            if !self.taken.contains(&name) {
                break;
            }
            name = marked(server, tool, salt);
        }
        self.taken.insert(name.clone());
        self.given.insert(key, name.clone());
        name
    }
}

/// The name as it should be: the two names, where they can be read off it again.
fn name(server: &str, tool: &str) -> String {
    let is_plain = plain(server) == server && plain(tool) == tool;
    let is_clear = !server.contains("__") && !server.ends_with('_');
    let whole = format!("mcp__{server}__{tool}");
    let is_whole = whole.len() <= LONGEST && !server.is_empty() && !tool.is_empty();
    if is_plain && is_clear && is_whole { whole } else { marked(server, tool, 0) }
}

/// A name with a mark that no other pair of names has.
fn marked(server: &str, tool: &str, salt: u32) -> String {
    let print = hex(digest(&SHA256, format!("{server}\0{tool}\0{salt}").as_bytes()).as_ref());
    let (mut first, second) = (plain(server), plain(tool));
    let room = LONGEST - SUFFIX - "mcp____".len() - 1;
    if first.len() + second.len() > room {
        first.truncate(LONGEST_SERVER.max(room.saturating_sub(second.len())));
    }
    let mut name = format!("mcp__{first}__{second}");
    name.truncate(LONGEST - SUFFIX - 1);
    format!("{name}_{}", &print[..SUFFIX])
}

fn plain(name: &str) -> String {
    let fits = |it: char| it.is_ascii_alphanumeric() || it == '_' || it == '-';
    name.chars().map(|it| if fits(it) { it } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_is_the_two_names_where_that_is_possible() {
        let table = [
            ("notes", "search", "mcp__notes__search"),
            ("my-server", "get_it", "mcp__my-server__get_it"),
            ("notes", "_x", "mcp__notes___x"),
            ("notes", "a.b", "mcp__notes__a_b_"),
            ("My Files", "read", "mcp__My_Files__read_"),
            ("a__b", "c", "mcp__a__b__c_"),
            ("a_", "c", "mcp__a___c_"),
            ("é", "日本", "mcp________"),
            ("", "x", "mcp____x_"),
        ];
        for (server, tool, expected) in table {
            let name = Names::default().of(server, tool);
            let found = if expected.ends_with('_') { &name[..name.len() - SUFFIX] } else { &name };
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn of_long_names_the_tool_stays_readable() {
        let (server, tool) = ("s".repeat(60), "list_everything_there_is");
        let name = Names::default().of(&server, tool);
        assert!(name.len() == LONGEST && name.contains("__list_everything_there_is_"), "{name}");
        let name = Names::default().of("github", &"t".repeat(128));
        assert!(name.len() == LONGEST && name.starts_with("mcp__github__ttt"), "{name}");
    }

    #[test]
    fn who_copies_a_name_does_not_get_it() {
        let mut names = Names::default();
        let first = names.of("my.server", "x");
        let copy = first.strip_prefix("mcp__my_server__").unwrap();
        assert_ne!(names.of("my_server", copy), first);
        assert_eq!(names.of("my.server", "x"), first);
    }

    proptest! {
        #[test]
        fn every_tool_has_a_name_of_its_own_that_it_keeps(
            tools in prop::collection::vec(("[ab_.]{0,4}|\\PC{0,80}", "[ab_.]{0,4}|\\PC{0,200}"), 0..40),
        ) {
            let mut names = Names::default();
            let given: Vec<_> = tools.iter().map(|(server, tool)| names.of(server, tool)).collect();
            for (number, name) in given.iter().enumerate() {
                prop_assert!((1..=LONGEST).contains(&name.len()) && plain(name) == *name);
                for (other, its) in given.iter().enumerate() {
                    prop_assert_eq!(name == its, tools[number] == tools[other]);
                }
            }
            for ((server, tool), name) in tools.iter().zip(&given).rev() {
                prop_assert_eq!(&names.of(server, tool), name);
            }
        }
    }
}
