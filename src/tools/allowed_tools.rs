//! The restriction of a session to some tools.

use super::arguments::letters_and_digits;

/// The only tools of a session.
#[derive(Debug)]
pub(crate) struct AllowedTools {
    /// The names as the client has written them.
    names: Vec<String>,
}

impl AllowedTools {
    /// The tools of these names, which may be those of other agents (`Read`, `Bash(git:*)`,
    /// `mcp__server__tool`). A pattern behind a name is ignored: it would be an approval in other
    /// agents, and nothing is approved here.
    pub(crate) fn new(names: &[String]) -> AllowedTools {
        let bare = names.iter().map(|it| it.split('(').next().unwrap_or_default());
        AllowedTools { names: bare.map(|it| it.trim().to_owned()).collect() }
    }

    /// Whether the built-in tool with this name, or with one of these names of other agents, is allowed.
    pub(super) fn contains(&self, name: &str, foreign: &[&str]) -> bool {
        let name = letters_and_digits(name);
        let mut names = self.names.iter().map(|it| letters_and_digits(it));
        names.any(|it| it == name || foreign.contains(&it.as_str()))
    }

    /// Whether the MCP tool with this name, `mcp__SERVER__TOOL`, is allowed. Names of MCP tools may differ
    /// only in punctuation.
    pub(super) fn contains_remote(&self, name: &str) -> bool {
        self.names.iter().any(|it| it == name)
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
            ("edit_file", &["edit"], false),
        ] {
            assert_eq!(allowed.contains(name, foreign), expected, "{name}");
        }
        for (name, expected) in [
            ("mcp__files__list_all", true),
            ("mcp__files_list__all", false),
            ("mcp__files__list", false),
            ("mcp__other__read", false),
        ] {
            assert_eq!(allowed.contains_remote(name), expected, "{name}");
        }
        assert!(!AllowedTools::new(&[]).contains("read_file", &["read"]));
    }
}
