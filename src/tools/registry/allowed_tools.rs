//! The restriction of a session to some tools.

use std::sync::Arc;

use crate::tools::arguments::letters_and_digits;

/// Built-in tools that a helper never has: they start helpers or talk to the user for the session.
const NOT_FOR_HELPERS: &[&str] = &["agent", "ask_user", "exit_plan", "plan"];

/// The only tools of a session.
#[derive(Debug)]
pub(crate) struct AllowedTools {
    /// The names as the client has written them; `None` for all tools.
    names: Option<Vec<String>>,
    /// Built-in tools that are not among them.
    excluded: &'static [&'static str],
    /// A further restriction, of the session that a helper belongs to.
    outer: Option<Arc<AllowedTools>>,
}

impl AllowedTools {
    /// The tools with these names, which may be names from other agents (`Read`, `Bash(git:*)`,
    /// `mcp__server__tool`). A pattern behind a name is ignored: it would be an approval in other
    /// agents, and nothing is approved here.
    pub(crate) fn new(names: &[String]) -> AllowedTools {
        let bare = names.iter().map(|name| name.split('(').next().unwrap_or_default());
        let names = Some(bare.map(|name| name.trim().to_owned()).collect());
        AllowedTools { names, excluded: &[], outer: None }
    }

    /// The tools of a helper: the named ones, or all, limited to those of its session.
    pub(in crate::tools) fn of_helper(
        names: Option<&[String]>,
        outer: Option<Arc<AllowedTools>>,
    ) -> AllowedTools {
        let names = names.and_then(|names| AllowedTools::new(names).names);
        AllowedTools { names, excluded: NOT_FOR_HELPERS, outer }
    }

    /// Returns true if the built-in tool with this name, or with one of these names of other agents, is allowed.
    pub(in crate::tools) fn contains(&self, name: &str, foreign: &[&str]) -> bool {
        if self.excluded.contains(&name)
            || self.outer.as_ref().is_some_and(|outer| !outer.contains(name, foreign))
        {
            return false;
        }
        let name = letters_and_digits(name);
        self.names.as_ref().is_none_or(|names| {
            let mut allowed = names.iter().map(|allowed| letters_and_digits(allowed));
            allowed.any(|allowed| allowed == name || foreign.contains(&allowed.as_str()))
                || self.has_wildcard()
        })
    }

    /// Returns true if the MCP tool with this name, `mcp__SERVER__TOOL`, is allowed: by its own name, or by its
    /// server's, `mcp__SERVER` or `mcp__SERVER__*`. Names of MCP tools may differ only in punctuation.
    pub(in crate::tools) fn contains_remote(&self, name: &str) -> bool {
        if self.outer.as_ref().is_some_and(|outer| !outer.contains_remote(name)) {
            return false;
        }
        self.names.as_ref().is_none_or(|names| {
            names.iter().any(|allowed| allows_remote(allowed, name)) || self.has_wildcard()
        })
    }

    fn has_wildcard(&self) -> bool {
        self.names.iter().flatten().any(|name| name == "*")
    }
}

/// Returns true if `allowed` is the name of this MCP tool or of its server.
fn allows_remote(allowed: &str, name: &str) -> bool {
    let server = allowed.strip_suffix("__*").unwrap_or(allowed);
    let tool = server.strip_prefix("mcp__").and_then(|_| name.strip_prefix(server));
    allowed == name || tool.is_some_and(|tool| tool.starts_with("__"))
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
        for (pattern, expected) in [
            ("mcp__files", [true, true, false]),
            ("mcp__files__*", [true, true, false]),
            ("mcp__files__read", [true, false, false]),
            ("mcp__file", [false; 3]),
            ("mcp__", [false; 3]),
            ("mcp", [false; 3]),
            ("__*", [false; 3]),
            ("*", [true; 3]),
        ] {
            let allowed = AllowedTools::new(&[pattern.to_owned()]);
            let names = ["mcp__files__read", "mcp__files__list", "mcp__other__read"];
            assert_eq!(names.map(|name| allowed.contains_remote(name)), expected, "{pattern}");
            assert_eq!(allowed.contains("exec", &["bash"]), pattern == "*", "{pattern}");
        }
        assert!(!AllowedTools::new(&[]).contains("read_file", &["read"]));
    }

    #[test]
    fn a_helper_has_at_most_the_tools_of_its_session() {
        let session = Arc::new(AllowedTools::new(&["Read", "Bash", "agent"].map(str::to_owned)));
        let names = ["Read", "Edit", "agent"].map(str::to_owned);
        let open = AllowedTools::of_helper(None, None);
        let limited = AllowedTools::of_helper(None, Some(Arc::clone(&session)));
        let named = AllowedTools::of_helper(Some(&names), Some(session));
        for (name, foreign, expected) in [
            ("read_file", &["read"][..], [true, true, true]),
            ("exec", &["bash"], [true, true, false]),
            ("edit_file", &["edit"], [true, false, false]),
            ("agent", &[], [false; 3]),
            ("ask_user", &[], [false; 3]),
        ] {
            let helpers = [&open, &limited, &named];
            assert_eq!(helpers.map(|helper| helper.contains(name, foreign)), expected);
        }
        for (helper, expected) in [(&open, true), (&limited, false), (&named, false)] {
            assert_eq!(helper.contains_remote("mcp__a__b"), expected);
        }
    }
}
