//! `[checks]`: commands that check the project after the model has edited it.

use std::collections::BTreeMap;

/// The checks of a file: a command line for each name.
pub type CheckTable = BTreeMap<String, String>;

/// The most checks of a session.
pub const MAX_CHECKS: usize = 8;
/// The longest name, in bytes.
const MAX_NAME_BYTES: usize = 64;
/// The longest command line, in bytes.
const MAX_COMMAND_BYTES: usize = 4 * 1024;

/// The checks that can be run.
pub fn usable(checks: &CheckTable) -> impl Iterator<Item = (&String, &String)> {
    checks.iter().filter(|(name, command)| is_name(name) && is_command(command)).take(MAX_CHECKS)
}

/// The errors in the checks of a file, which have this key, a sentence each.
pub(crate) fn wrong_checks(key: &str, checks: &CheckTable) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, command) in checks {
        let name = name.escape_debug();
        if !is_name(&name.to_string()) {
            wrong.push(format!(
                "`{key}.{name}`: a name may have only letters, digits, `_` and `-`, at most 64"
            ));
        } else if !is_command(command) {
            wrong.push(format!("`{key}.{name}` must be a command in one line, at most 4 KiB"));
        }
    }
    if checks.len() > MAX_CHECKS {
        wrong.push(format!("`{key}` has {} entries, and {MAX_CHECKS} are used", checks.len()));
    }
    wrong
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

fn is_command(command: &str) -> bool {
    !command.trim().is_empty()
        && command.len() <= MAX_COMMAND_BYTES
        && !command.contains(['\n', '\r', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_has_a_plain_name_and_one_line_and_there_are_not_many() {
        let table = |entries: &[(&str, &str)]| -> CheckTable {
            entries.iter().map(|(name, it)| ((*name).to_owned(), (*it).to_owned())).collect()
        };
        let mixed =
            table(&[("rust", "cargo check"), ("a b", "x"), ("empty", " "), ("two", "a\nb")]);
        assert_eq!(usable(&mixed).map(|check| check.0.as_str()).collect::<Vec<_>>(), ["rust"]);
        let wrong = wrong_checks("checks", &mixed);
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        assert!(wrong[0].starts_with("`checks.a b`: a name") && wrong[1].contains("in one line"));
        let many: CheckTable =
            (0..9).map(|number| (number.to_string(), "true".to_owned())).collect();
        assert_eq!(usable(&many).count(), MAX_CHECKS);
        assert_eq!(wrong_checks("checks", &many), ["`checks` has 9 entries, and 8 are used"]);
    }
}
