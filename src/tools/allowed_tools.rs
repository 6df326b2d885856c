//! The restriction of a session to some tools.

use super::arguments::letters_and_digits;

/// The prefix of MCP tools in the names that other agents use: `mcp__SERVER__TOOL`.
const MCP_PREFIX: &str = "mcp__";

/// The only tools of a session.
#[derive(Debug)]
pub(crate) struct AllowedTools {
    /// Letters and digits of the names.
    names: Vec<String>,
}

impl AllowedTools {
    /// The tools of these names, which may be those of other agents (`Read`, `Bash(git:*)`,
    /// `mcp__server__tool`). A pattern behind a name is ignored: it would be an approval in other
    /// agents, and nothing is approved here.
    pub(crate) fn new(names: &[String]) -> AllowedTools {
        let bare = names.iter().map(|it| it.split('(').next().unwrap_or_default());
        let bare = bare.map(|it| it.trim().trim_start_matches(MCP_PREFIX));
        AllowedTools { names: bare.map(letters_and_digits).collect() }
    }

    /// Whether the tool with this name, or with one of these names of other agents, is allowed.
    pub(super) fn contains(&self, name: &str, foreign: &[&str]) -> bool {
        let name = letters_and_digits(name);
        self.names.iter().any(|it| *it == name || foreign.contains(&it.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_agents_mean_the_same_tools() {
        let allowed = ["Read", "Bash(git:*)", "mcp__files__list_all", " web_fetch "];
        let allowed = AllowedTools::new(&allowed.map(str::to_owned));
        for (name, foreign, expected) in [
            ("read_file", &["read"][..], true),
            ("exec", &["bash", "shell"], true),
            ("web_fetch", &["fetch"], true),
            ("files_list_all", &[], true),
            ("files_list", &[], false),
            ("edit_file", &["edit"], false),
        ] {
            assert_eq!(allowed.contains(name, foreign), expected, "{name}");
        }
        assert!(!AllowedTools::new(&[]).contains("read_file", &["read"]));
    }
}
