//! Gives the tools of servers names that every provider accepts: `mcp__SERVER__TOOL`, at most 64 letters,
//! digits, `_` and `-`, each unique. A tool keeps its name for the whole session, even as other tools
//! come and go.

use std::collections::{HashMap, HashSet};

use turnwright_types::hash::sha256_hex;

/// The longest function name that all providers accept.
const MAX_NAME_LEN: usize = 64;
/// The length to which a server's name is cut if both names do not fit.
const MAX_SERVER_LEN: usize = 20;
/// The length of the digest that makes ambiguous names unique.
const DIGEST_LEN: usize = 8;
/// Maximum number of names that are remembered. Only a server that keeps inventing tools can exceed this.
const MAX_NAMES: usize = 10_000;

/// The names of the tools in one session.
#[derive(Debug, Default)]
pub struct ToolNames {
    /// By server and tool.
    given: HashMap<(String, String), String>,
    taken: HashSet<String>,
}

impl ToolNames {
    /// Returns the name of a server's tool. It nearly always depends on the two names alone, so it is
    /// the same in every session.
    pub fn name_of(&mut self, server: &str, tool: &str) -> String {
        let key = (server.to_owned(), tool.to_owned());
        if let Some(name) = self.given.get(&key) {
            return name.clone();
        }
        if self.given.len() >= MAX_NAMES {
            *self = ToolNames::default();
        }
        let mut name = preferred_name(server, tool);
        for salt in 1_u32.. {
            if !self.taken.contains(&name) {
                break;
            }
            name = with_digest(server, tool, salt);
        }
        self.taken.insert(name.clone());
        self.given.insert(key, name.clone());
        name
    }
}

/// Joins the two names if they can be told apart again, otherwise adds a digest.
fn preferred_name(server: &str, tool: &str) -> String {
    let is_valid = sanitized(server) == server && sanitized(tool) == tool;
    let is_unambiguous = !server.contains("__") && !server.ends_with('_');
    let whole = format!("mcp__{server}__{tool}");
    let fits = whole.len() <= MAX_NAME_LEN && !server.is_empty() && !tool.is_empty();
    if is_valid && is_unambiguous && fits { whole } else { with_digest(server, tool, 0) }
}

/// A name with a digest that is unique to the pair of names.
fn with_digest(server: &str, tool: &str, salt: u32) -> String {
    let digest = sha256_hex(format!("{server}\0{tool}\0{salt}").as_bytes());
    let mut first = sanitized(server);
    let second = sanitized(tool);
    let available = MAX_NAME_LEN - DIGEST_LEN - "mcp____".len() - 1;
    if first.len() + second.len() > available {
        first.truncate(MAX_SERVER_LEN.max(available.saturating_sub(second.len())));
    }
    let mut name = format!("mcp__{first}__{second}");
    name.truncate(MAX_NAME_LEN - DIGEST_LEN - 1);
    format!("{name}_{}", &digest[..DIGEST_LEN])
}

fn sanitized(name: &str) -> String {
    name.replace(
        |character: char| !character.is_ascii_alphanumeric() && !matches!(character, '_' | '-'),
        "_",
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_joins_the_two_names_if_possible() {
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
            let name = ToolNames::default().name_of(server, tool);
            let found =
                if expected.ends_with('_') { &name[..name.len() - DIGEST_LEN] } else { &name };
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn the_tool_name_stays_readable_in_long_names() {
        let server = "s".repeat(60);
        let tool = "list_everything_there_is";
        let name = ToolNames::default().name_of(&server, tool);
        assert!(
            name.len() == MAX_NAME_LEN && name.contains("__list_everything_there_is_"),
            "{name}"
        );
        let name = ToolNames::default().name_of("github", &"t".repeat(128));
        assert!(name.len() == MAX_NAME_LEN && name.starts_with("mcp__github__ttt"), "{name}");
    }

    #[test]
    fn a_server_cannot_take_the_name_of_another_servers_tool() {
        let mut names = ToolNames::default();
        let first = names.name_of("my.server", "x");
        let copy = first.strip_prefix("mcp__my_server__").unwrap();
        assert_ne!(names.name_of("my_server", copy), first);
        assert_eq!(names.name_of("my.server", "x"), first);
    }

    proptest! {
        #[test]
        fn every_tool_gets_a_unique_name_and_keeps_it(
            tools in prop::collection::vec(("[ab_.]{0,4}|\\PC{0,80}", "[ab_.]{0,4}|\\PC{0,200}"), 0..40),
        ) {
            let mut names = ToolNames::default();
            let given: Vec<_> = tools.iter().map(|(server, tool)| names.name_of(server, tool)).collect();
            for (number, name) in given.iter().enumerate() {
                prop_assert!((1..=MAX_NAME_LEN).contains(&name.len()) && sanitized(name) == *name);
                for (other, its) in given.iter().enumerate() {
                    prop_assert_eq!(name == its, tools[number] == tools[other]);
                }
            }
            for ((server, tool), name) in tools.iter().zip(&given).rev() {
                prop_assert_eq!(&names.name_of(server, tool), name);
            }
        }
    }
}
