//! The settings of git that say how the user signs. Only those of the user and of the system count, with what they
//! include: commands can make repositories with settings of their own.

use super::wire::SignatureFormat;
use turnwright_workspace::exec::Environment;

/// The names of these settings, and of those that lead to further files.
pub(super) const SETTINGS_PATTERN: &str = r"^(user\.(name|email|signingkey)|committer\.(name|email)|gpg\.(.*\.)?program|gpg\.ssh\.defaultkeycommand|include\.path|includeif\..*\.path)$";
/// The scopes of the files that only the user and the administrator write.
const TRUSTED_SCOPES: [&str; 2] = ["system", "global"];
/// The characters that git removes at the ends of names and addresses, besides blanks.
const TRIMMED_BY_GIT: &str = ".,:;<>\"\\'";

#[derive(Debug, Default)]
pub(super) struct SigningSettings(Vec<SigningSetting>);

#[derive(Debug)]
struct SigningSetting {
    /// The file that sets it; empty if it is in none.
    file: String,
    name: String,
    value: String,
}

impl SigningSettings {
    /// Reads the output of `git config --null --show-scope --show-origin --get-regexp`.
    pub(super) fn parse(output: &str) -> SigningSettings {
        let mut parts = output.split_terminator('\0');
        let mut all = Vec::new();
        while let (Some(scope), Some(origin), Some(setting)) =
            (parts.next(), parts.next(), parts.next())
        {
            if TRUSTED_SCOPES.contains(&scope) {
                let (name, value) = setting.split_once('\n').unwrap_or((setting, ""));
                all.push(SigningSetting {
                    file: origin.strip_prefix("file:").unwrap_or_default().to_owned(),
                    name: name.to_owned(),
                    value: value.to_owned(),
                });
            }
        }
        SigningSettings(all)
    }

    /// The files that have such settings or include one that has.
    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|setting| setting.file.as_str())
    }

    /// The last value counts.
    fn value(&self, is_wanted: impl Fn(&str) -> bool) -> Option<&str> {
        let mut latest_first = self.0.iter().rev();
        latest_first.find(|setting| is_wanted(&setting.name)).map(|setting| setting.value.as_str())
    }

    /// The program for a format. `gpg.program` is another name of the one for OpenPGP.
    pub(super) fn program(&self, format: SignatureFormat) -> Option<&str> {
        let own_name = format!("gpg.{}.program", format.name());
        let has_short_name = format == SignatureFormat::OpenPgp;
        self.value(|name| name == own_name || has_short_name && name == "gpg.program")
    }

    pub(super) fn signing_key(&self) -> Option<&str> {
        self.value(|name| name == "user.signingkey")
    }

    /// The words of the command that prints the SSH key if there is no other setting.
    pub(super) fn key_command(&self) -> Option<Vec<String>> {
        split_words(self.value(|name| name == "gpg.ssh.defaultkeycommand")?)
    }

    /// The committer, by whom the other formats find the key if there is no setting. The variables are the user's.
    pub(super) fn committer(&self, variables: &Environment) -> Option<String> {
        let name = text_of(variables, "GIT_COMMITTER_NAME")
            .or_else(|| self.value(|name| name == "committer.name"))
            .or_else(|| self.value(|name| name == "user.name"));
        let email = text_of(variables, "GIT_COMMITTER_EMAIL")
            .or_else(|| self.value(|name| name == "committer.email"))
            .or_else(|| self.value(|name| name == "user.email"))
            .or_else(|| text_of(variables, "EMAIL"));
        Some(format!("{} <{}>", as_in_identity(name?), as_in_identity(email?)))
    }
}

fn text_of<'a>(variables: &'a Environment, name: &str) -> Option<&'a str> {
    variables.get(name)?.to_str().filter(|value| !value.is_empty())
}

/// Writes a name or an address as git does in the identity of a committer.
fn as_in_identity(text: &str) -> String {
    let trimmed = text.trim_matches(|char: char| char <= ' ' || TRIMMED_BY_GIT.contains(char));
    trimmed.replace(['\n', '<', '>'], "")
}

/// Splits a command line as git does; `None` if a quotation has no end.
fn split_words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        match char {
            _ if quote == Some(char) => quote = None,
            '\'' | '"' if quote.is_none() => {
                quote = Some(char);
                word.get_or_insert_default();
            }
            '\\' if quote != Some('\'') => word.get_or_insert_default().push(chars.next()?),
            _ if quote.is_none() && char.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(char),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_setting_of_the_user_counts_and_none_of_a_repository() {
        let printed = "system\0file:/etc/gitconfig\0gpg.program\ngpg2\0\
                       global\0file:/h/.gitconfig\0gpg.ssh.program\n/opt/op-ssh-sign\0\
                       global\0file:/h/.gitconfig\0user.name\n Jane <Doe>.\0\
                       global\0file:/h/.gitconfig\0user.email\njane@example.org\0\
                       global\0file:/h/.gitconfig\0includeif.gitdir:~/work/.path\nwork\0\
                       global\0file:/h/work\0user.signingkey\nWORK\0\
                       global\0file:/h/work\0gpg.openpgp.program\n/usr/bin/gpg\0\
                       local\0file:.git/config\0user.signingkey\nOTHER\0\
                       command\0command line:\0gpg.x509.program\n/tmp/x\0";
        let settings = SigningSettings::parse(printed);
        assert_eq!(settings.program(SignatureFormat::OpenPgp), Some("/usr/bin/gpg"));
        assert_eq!(settings.program(SignatureFormat::Ssh), Some("/opt/op-ssh-sign"));
        assert_eq!(settings.program(SignatureFormat::X509), None);
        assert_eq!(settings.signing_key(), Some("WORK"));
        let none = Environment::default();
        assert_eq!(settings.committer(&none).as_deref(), Some("Jane Doe <jane@example.org>"));
        let files = ["/etc/gitconfig", "/h/.gitconfig", "/h/work"];
        assert!(settings.files().all(|file| files.contains(&file)));
        let only = SigningSettings::parse("global\0file:/a\0gpg.program\ngpg2\0");
        assert_eq!(only.program(SignatureFormat::OpenPgp), Some("gpg2"));
        assert_eq!((only.signing_key(), only.committer(&none)), (None, None));
        // A setting without a value, and one that is in no file.
        let odd = SigningSettings::parse("global\0standard input:\0gpg.program\0");
        assert_eq!(odd.files().collect::<Vec<_>>(), [""]);
        assert_eq!(odd.program(SignatureFormat::OpenPgp), Some(""));
    }

    #[test]
    fn variables_of_the_user_name_the_committer_before_settings() {
        let settings = SigningSettings::parse(
            "global\0file:/h/.gitconfig\0committer.name\nJane\0\
             global\0file:/h/.gitconfig\0committer.email\njane@example.org\0",
        );
        let none = SigningSettings::default();
        for (variables, of_settings, without) in [
            (&[("GIT_COMMITTER_NAME", "Joe")][..], "Joe <jane@example.org>", None),
            (&[("GIT_COMMITTER_EMAIL", "j@b.example")], "Jane <j@b.example>", None),
            (
                &[("GIT_COMMITTER_EMAIL", ""), ("EMAIL", "e@b.example")],
                "Jane <jane@example.org>",
                None,
            ),
            (
                &[("GIT_COMMITTER_NAME", "Joe"), ("EMAIL", "e@b.example")],
                "Joe <jane@example.org>",
                Some("Joe <e@b.example>"),
            ),
        ] {
            let environment = variables
                .iter()
                .fold(Environment::default(), |all, (name, value)| all.with(name, *value));
            assert_eq!(settings.committer(&environment).as_deref(), Some(of_settings));
            assert_eq!(none.committer(&environment).as_deref(), without);
        }
    }

    #[test]
    fn a_command_that_prints_the_key_is_split_as_git_does() {
        for (line, expected) in [
            ("ssh-add -L", Some(vec!["ssh-add", "-L"])),
            (" sh  -c 'echo \"key::$1\"' ''", Some(vec!["sh", "-c", "echo \"key::$1\"", ""])),
            (r#"a\ b "c\"d" e'f'g"#, Some(vec!["a b", "c\"d", "efg"])),
            ("", Some(vec![])),
            ("sh -c 'x", None),
            ("x \\", None),
        ] {
            let words: Option<Vec<String>> =
                expected.map(|words| words.into_iter().map(str::to_owned).collect());
            assert_eq!(split_words(line), words, "{line}");
        }
    }
}
