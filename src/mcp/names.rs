//! The names of tools, as models can have them: `mcp__SERVER__TOOL`, of letters, digits, `_` and
//! `-`, 64 at most, and each once.

use std::collections::HashSet;

use ring::digest::{SHA256, digest};

use crate::ids::hex;

/// The longest name of a function that all providers take.
const LONGEST: usize = 64;
/// What tells cut names apart.
const SUFFIX: usize = 8;

/// The name of a server's tool, that is not taken yet.
pub(super) fn unique(server: &str, tool: &str, taken: &mut HashSet<String>) -> String {
    let mut name = format!("mcp__{}__{}", plain(server), plain(tool));
    let is_whole = name.len() <= LONGEST && plain(server) == server && plain(tool) == tool;
    if !is_whole || taken.contains(&name) {
        let whole = format!("{server}\0{tool}");
        let print = hex(digest(&SHA256, whole.as_bytes()).as_ref());
        name.truncate(LONGEST - SUFFIX - 1);
        name = format!("{name}_{}", &print[..SUFFIX]);
    }
    taken.insert(name.clone());
    name
}

fn plain(name: &str) -> String {
    let fits = |it: char| it.is_ascii_alphanumeric() || it == '_' || it == '-';
    name.chars().map(|it| if fits(it) { it } else { '_' }).collect()
}
