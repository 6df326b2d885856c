//! The settings of git: parses a config the way git does, and tells which settings are harmless, and for which commands
//! the others matter. Pure. Any setting that is not known to be harmless may start a program.

use std::iter::Peekable;
use std::path::{Component, Path, PathBuf};
use std::str::Chars;

use turnwright_policy::shell::{GitProgram, GitUse};
use turnwright_types::text;

/// A setting of a config file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GitSetting {
    /// `section.key` in lower case, without the subsection.
    pub(super) key: String,
    /// The subsection, in its original case.
    pub(super) subsection: Option<String>,
    /// `None` for a key without a value, which means `true`.
    pub(super) value: Option<String>,
}

/// Parses a config file; `None` if the text is none that git takes.
pub(super) fn parse(text: &str) -> Option<Vec<GitSetting>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n");
    let mut rest = GitConfigParser(text.chars().peekable());
    let mut section: Option<(String, Option<String>)> = None;
    let mut all = Vec::new();
    while let Some(char) = rest.0.next() {
        match char {
            ' ' | '\t' | '\n' | '\u{b}' | '\u{c}' | '\r' => {}
            '#' | ';' => rest.skip_line(),
            '[' => section = Some(rest.section()?),
            char if char.is_ascii_alphabetic() => {
                let (section, middle) = section.as_ref()?;
                let (key, value) = rest.setting(char)?;
                let key = format!("{section}.{key}");
                all.push(GitSetting { key, subsection: middle.clone(), value });
            }
            _ => return None,
        }
    }
    Some(all)
}

/// The characters that are not read yet.
struct GitConfigParser<'a>(Peekable<Chars<'a>>);

impl GitConfigParser<'_> {
    fn skip_line(&mut self) {
        while self.0.next().is_some_and(|char| char != '\n') {}
    }

    fn skip_blanks(&mut self) {
        while self.0.next_if(|char| matches!(char, ' ' | '\t')).is_some() {}
    }

    /// Parses a section header; `[` is consumed.
    fn section(&mut self) -> Option<(String, Option<String>)> {
        let mut name = String::new();
        loop {
            match self.0.next()? {
                ']' => break,
                ' ' | '\t' => return Some((name, Some(self.subsection()?))),
                char if char.is_ascii_alphanumeric() || "-.".contains(char) => {
                    name.push(char.to_ascii_lowercase());
                }
                _ => return None,
            }
        }
        // The deprecated `[section.subsection]` syntax.
        Some(match name.split_once('.') {
            Some((section, middle)) => (section.to_owned(), Some(middle.to_owned())),
            None => (name, None),
        })
    }

    /// Parses a subsection; the blank after the section's name is consumed.
    fn subsection(&mut self) -> Option<String> {
        self.skip_blanks();
        let mut name = String::new();
        if self.0.next() != Some('"') {
            return None;
        }
        loop {
            match self.0.next()? {
                '"' => break,
                '\n' => return None,
                '\\' => match self.0.next()? {
                    '\n' => return None,
                    char => name.push(char),
                },
                char => name.push(char),
            }
        }
        (self.0.next() == Some(']')).then_some(name)
    }

    /// Parses a key and its value; the first letter of the key is consumed.
    fn setting(&mut self, first: char) -> Option<(String, Option<String>)> {
        let mut key = String::from(first.to_ascii_lowercase());
        while let Some(char) = self.0.next_if(|char| char.is_ascii_alphanumeric() || *char == '-') {
            key.push(char.to_ascii_lowercase());
        }
        self.skip_blanks();
        match self.0.next() {
            None | Some('\n') => Some((key, None)),
            Some('=') => Some((key, Some(self.value()?))),
            Some(_) => None,
        }
    }

    /// Parses a value; `=` is consumed.
    fn value(&mut self) -> Option<String> {
        let mut value = String::new();
        // The length of the value without trailing blanks.
        let mut kept = 0;
        let mut is_quoted = false;
        loop {
            match self.0.next() {
                None | Some('\n') if is_quoted => return None,
                None | Some('\n') => break,
                Some('#' | ';') if !is_quoted => {
                    self.skip_line();
                    break;
                }
                Some('"') => {
                    is_quoted = !is_quoted;
                    kept = value.len();
                }
                Some('\\') => {
                    match self.0.next()? {
                        '\n' => continue,
                        'n' => value.push('\n'),
                        't' => value.push('\t'),
                        'b' => value.push('\u{8}'),
                        char @ ('\\' | '"') => value.push(char),
                        _ => return None,
                    }
                    kept = value.len();
                }
                Some(char) if char.is_whitespace() && !is_quoted => {
                    if !value.is_empty() {
                        value.push(char);
                    }
                }
                Some(char) => {
                    value.push(char);
                    kept = value.len();
                }
            }
        }
        value.truncate(kept);
        Some(value)
    }
}

/// Keys that start no program, and sections in which no key does.
const HARMLESS_KEYS: &str = include_str!("settings/harmless_keys.txt");

/// Keys that are harmless with exactly this value: what `git lfs install --local` writes.
const HARMLESS_PAIRS: &[(&str, &str)] = &[
    ("filter.clean", "git-lfs clean -- %f"),
    ("filter.process", "git-lfs filter-process"),
    ("filter.required", "true"),
    ("filter.smudge", "git-lfs smudge -- %f"),
];

/// Kinds of programs, the keys that name one, and the sections of which each key does.
const PROGRAM_KEYS: &[(GitProgram, &str)] = &[
    (GitProgram::Connection, include_str!("settings/programs/connection.txt")),
    (GitProgram::Content, include_str!("settings/programs/content.txt")),
    (GitProgram::Diff, include_str!("settings/programs/diff.txt")),
    (GitProgram::Fsmonitor, include_str!("settings/programs/fsmonitor.txt")),
    (GitProgram::Hook, include_str!("settings/programs/hook.txt")),
    (GitProgram::Interactive, include_str!("settings/programs/interactive.txt")),
    (GitProgram::Signature, include_str!("settings/programs/signature.txt")),
];

/// Keys and sections that lead to other places where git connects to one, or to a program for that.
const CONNECTIONS: &str = "credential fetch.bundleuri http lfs.url lfs.pushurl protocol remote.proxy remote.pushurl \
                           remote.url remote.vcs ssh transfer.bundleuri";

/// Sections that matter only to programs for people, and to commands that are not looked into.
const INTERACTIVE_SECTIONS: &str = "absorb branchless forge ghq git-town gitbutler gitflow github gitlab gitreview gtr \
                                    gui help hub instaweb magit revise sendemail spice svn svn-remote web worktrunk wt";

/// Keys that name a file from which git takes patterns or names of commits, and what the name of such a file
/// contains if it is the user's own.
const PATTERN_FILES: &[(&str, &str)] = &[
    ("blame.ignorerevsfile", "ignore"),
    ("core.attributesfile", "attributes"),
    ("core.excludesfile", "ignore"),
];

impl GitSetting {
    /// The files in a working tree that git runs because of the setting, or gives to a program that it runs.
    pub(super) fn programs(&self, top: &Path) -> Vec<PathBuf> {
        let section = self.key.split('.').next().unwrap_or_default();
        let line = self.value.as_deref().unwrap_or_default();
        if self.program().is_none() || section == "alias" && !line.starts_with('!') {
            return Vec::new();
        }
        let words = line
            .split(|letter: char| letter.is_whitespace() || "\"'`!;|&()<>=".contains(letter))
            .filter(|word| !word.is_empty() && !word.starts_with(['-', '~', '$', '%']));
        let files = words.filter_map(|word| {
            let path = top.join(word);
            let is_file = match path.symlink_metadata() {
                Ok(found) => !found.is_dir(),
                // A program that is not there yet is recognised by its path.
                Err(_) => word.contains('/') && section != "alias",
            };
            is_file.then_some(path)
        });
        files.collect()
    }

    /// Returns true if the setting only names a program, so that the sandbox bounds its effects. An alias
    /// may also stand for a command that destroys something.
    pub(super) fn is_program(&self) -> bool {
        self.program().is_some() && !self.key.starts_with("alias.")
    }

    /// The kind of the program that the setting names.
    fn program(&self) -> Option<GitProgram> {
        let section = self.key.split('.').next().unwrap_or_default();
        let named = PROGRAM_KEYS.iter().find(|(_, names)| {
            text::list_entries(names).any(|name| name == self.key || name == section)
        });
        named.map(|(kind, _)| *kind)
    }

    /// Returns true if the setting may make git start a program in this use, or lead it elsewhere. One that is not
    /// known may do that in any.
    pub(super) fn matters_to(&self, git: &GitUse) -> bool {
        let value = self.value.as_deref().unwrap_or_default();
        if self.is_harmless() || self.names_pattern_file() {
            return false;
        }
        let (section, key) = self.key.split_once('.').unwrap_or_default();
        if section == "alias" {
            return git.may_run_alias();
        }
        if section == "url" {
            let leads_elsewhere = !self.subsection.as_deref().is_some_and(is_usual_address);
            return git.may_start(GitProgram::Connection)
                && (leads_elsewhere
                    || !["insteadof", "pushinsteadof"].contains(&key)
                    || value.is_empty());
        }
        let connects = is_in(CONNECTIONS, &self.key) || is_in(CONNECTIONS, section);
        let hooks = (self.key == "core.hookspath").then_some(GitProgram::Hook);
        let is_interactive = is_in(INTERACTIVE_SECTIONS, section);
        let kind = self
            .program()
            .or(hooks)
            .or(connects.then_some(GitProgram::Connection))
            .or(is_interactive.then_some(GitProgram::Interactive));
        kind.is_none_or(|kind| git.may_start(kind))
    }

    /// Returns true if the setting makes git connect to another repository whenever an object is not here.
    pub(super) fn fetches_on_demand(&self) -> bool {
        ["extensions.partialclone", "remote.promisor"].contains(&self.key.as_str())
    }

    /// Returns true if the setting names a file with patterns that is in the project or looks like the user's own.
    fn names_pattern_file(&self) -> bool {
        let Some((_, part)) = PATTERN_FILES.iter().find(|(key, _)| *key == self.key) else {
            return false;
        };
        let path = Path::new(self.value.as_deref().unwrap_or_default());
        let is_inside =
            path.components().all(|step| matches!(step, Component::Normal(_) | Component::CurDir));
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        is_inside && !path.starts_with("~") || name.contains(part)
    }

    /// Says that the setting is a reason to ask.
    pub(super) fn reason(&self) -> String {
        let name = self.name();
        match self.program() {
            Some(_) => format!("the repository's settings start programs ({name})"),
            None => format!("the repository has a setting that may start programs ({name})"),
        }
    }

    /// The full name, as people write it.
    pub(super) fn name(&self) -> String {
        match (&self.subsection, self.key.split_once('.')) {
            (Some(middle), Some((section, key))) => format!("{section}.{middle}.{key}"),
            _ => self.key.clone(),
        }
    }

    /// Returns true if the setting cannot make git start a program.
    pub(super) fn is_harmless(&self) -> bool {
        let value = self.value.as_deref().unwrap_or("true");
        let (section, _) = self.key.split_once('.').unwrap_or_default();
        match self.key.as_str() {
            "core.fsmonitor" => ["false", "no", "off", "0"].contains(&value),
            // These are protected paths, which are not written without a question.
            "core.hookspath" => {
                let place = value.trim_end_matches('/');
                [".husky", ".husky/_", ".githooks"].contains(&place)
            }
            "remote.url" | "remote.pushurl" | "submodule.url" => is_plain_url(value),
            "submodule.update" => !value.starts_with('!'),
            name => {
                text::list_entries(HARMLESS_KEYS).any(|known| known == name || known == section)
                    || HARMLESS_PAIRS.contains(&(name, value))
            }
        }
    }
}

/// Returns true if a list of words contains a word.
fn is_in(list: &str, word: &str) -> bool {
    list.split(' ').any(|known| known == word)
}

/// Returns true for the beginning of an address of another machine, as `url.*.insteadOf` has it, behind which no text
/// makes it an address of a remote helper (`ext::…`).
fn is_usual_address(base: &str) -> bool {
    let schemes = ["https://", "http://", "ssh://", "git://"];
    let user = base.split_once('@').map_or("", |(user, _)| user);
    schemes.iter().any(|scheme| base.starts_with(scheme))
        || !user.is_empty()
            && user.bytes().all(|byte| byte.is_ascii_alphanumeric())
            && is_plain_url(base)
}

/// Returns true if a URL names no remote helper (`ext::…`) and is no option.
fn is_plain_url(address: &str) -> bool {
    !address.contains("::") && !address.starts_with('-')
}

/// The beginnings of the names of settings in which git and editors keep notes about a branch. None of these settings
/// makes git run a program or connect elsewhere.
const BRANCH_NOTES: &str = "branch.rebase branch.description branch.vscode-merge-base branch.gh-merge-base \
                            branch.github-pr- branch.gk-";

/// Returns true if the only changes from `before` to `after` let branches track remotes that `before`
/// knows, or are notes about branches.
pub(crate) fn only_changes_tracking(before: &[u8], after: &[u8]) -> bool {
    let settings_of = |text| str::from_utf8(text).ok().and_then(parse);
    let (Some(before), Some(after)) = (settings_of(before), settings_of(after)) else {
        return false;
    };
    let mut new = after.iter().filter(|setting| !before.contains(setting));
    let mut gone = before.iter().filter(|setting| !after.contains(setting));
    new.all(|setting| tracks_known_remote(setting, &before))
        && gone.all(|setting| setting.key.starts_with("branch."))
}

fn tracks_known_remote(setting: &GitSetting, known: &[GitSetting]) -> bool {
    match (setting.key.as_str(), setting.value.as_deref()) {
        ("branch.remote", Some(name)) => {
            let mut remotes = known.iter().filter(|setting| setting.key == "remote.url");
            name == "." || remotes.any(|remote| remote.subsection.as_deref() == Some(name))
        }
        ("branch.merge", Some(name)) => name.starts_with("refs/heads/"),
        (key, _) => BRANCH_NOTES.split(' ').any(|notes| key.starts_with(notes)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use turnwright_policy::shell;
    use turnwright_types::shell_script::ShellDialect;

    use super::*;

    #[test]
    fn invalid_config_is_rejected() {
        for text in [
            "fsmonitor = x",
            "[core",
            "[core\nbare = false",
            "[co re]\na = b",
            "[core \"a]\nb = c",
            "[core \"a\" ]\nb = c",
            "[core]\n= x",
            "[core]\na b = c",
            "[core]\na = \"b\nc = d",
            "[core]\na = \\x",
            "[core]\n1a = b",
            "[core]\na_b = c",
            "<<<<<<< HEAD",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    fn risky(text: &str) -> Option<Vec<String>> {
        let all = parse(text)?;
        Some(all.iter().filter(|setting| !setting.is_harmless()).map(GitSetting::name).collect())
    }

    #[test]
    fn settings_that_start_programs_are_found_however_they_are_written() {
        for (text, name) in [
            ("[core]\n\tfsmonitor = ./x", "core.fsmonitor"),
            ("[core]fsmonitor=x", "core.fsmonitor"),
            ("[CORE] FSMonitor=x", "core.fsmonitor"),
            ("[core]\nfsmonitor", "core.fsmonitor"),
            ("[core]\nbare = \\\nfalse\nfsmonitor = \\\n x", "core.fsmonitor"),
            ("[core]\nbare = false # \\\nfsmonitor = x", "core.fsmonitor"),
            ("[core]\r\nfsmonitor = x\r\n", "core.fsmonitor"),
            ("\u{feff}[core]\nfsmonitor = x", "core.fsmonitor"),
            ("; a\n# b\n[core] ; c\n fsmonitor = \"x\"", "core.fsmonitor"),
            ("[core]\nhookspath = /tmp/x", "core.hookspath"),
            ("[core]\nhooksPath = .husky/../x", "core.hookspath"),
            ("[core]\nsshCommand = x", "core.sshcommand"),
            ("[core]\npager = x", "core.pager"),
            ("[core]\neditor = x", "core.editor"),
            ("[core]\nworktree = /", "core.worktree"),
            ("[core]\nattributesFile = x", "core.attributesfile"),
            ("[core]\nalternateRefsCommand = x", "core.alternaterefscommand"),
            ("[core]\ngitProxy = x", "core.gitproxy"),
            ("[include]\npath = x", "include.path"),
            ("[includeIf \"gitdir:/\"]\npath = x", "includeif.gitdir:/.path"),
            ("[diff]\nexternal = x", "diff.external"),
            // A format can add a line `exec …` to the steps.
            ("[rebase]\ninstructionFormat = %s%nexec x", "rebase.instructionformat"),
            ("[diff \"a\\\"]b\"]\ntextconv = x", "diff.a\"]b.textconv"),
            ("[diff.x]\ncommand = x", "diff.x.command"),
            ("[filter \"x\"]\nclean = x", "filter.x.clean"),
            ("[filter \"lfs\"]\nprocess = \"git-lfs filter-process; x\"", "filter.lfs.process"),
            ("[alias]\nst = !x", "alias.st"),
            ("[credential]\nhelper = x", "credential.helper"),
            ("[gpg]\nprogram = x", "gpg.program"),
            ("[pager]\nlog = x", "pager.log"),
            ("[merge \"x\"]\ndriver = x", "merge.x.driver"),
            ("[sequence]\neditor = x", "sequence.editor"),
            ("[remote \"a\"]\nuploadpack = x", "remote.a.uploadpack"),
            ("[remote \"a\"]\nvcs = x", "remote.a.vcs"),
            ("[remote \"a\"]\nurl = ext::sh -c x", "remote.a.url"),
            ("[submodule \"a\"]\nupdate = !x", "submodule.a.update"),
            ("[uploadpack]\npackObjectsHook = x", "uploadpack.packobjectshook"),
            ("[url \"ext::x\"]\ninsteadOf = https://", "url.ext::x.insteadof"),
            ("[never]\nheardOf = it", "never.heardof"),
        ] {
            // The first risky setting that is found is the expected one.
            let found = risky(text).unwrap();
            assert_eq!(found.first().map(String::as_str), Some(name), "{text:?}");
        }
    }

    #[test]
    fn usual_settings_are_harmless() {
        for text in [
            "",
            "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\
             \tlogallrefupdates = true\n\tignorecase = true\n\tprecomposeunicode = true\n",
            "[remote \"origin\"]\n\turl = git@a.example:b/c.git\n\
             \tfetch = +refs/heads/*:refs/remotes/origin/*\n",
            "[branch \"feature/a]b\"]\n\tremote = origin\n\tmerge = refs/heads/a\n",
            "[user]\n\tname = A \\\"B\\\" C\n\temail = \"a@b.example\" ; mine\n",
            "[core]\nfsmonitor = false\nhooksPath = .husky/_\n",
            "[submodule \"a\"]\n\tactive = true\n\turl = ../a\n",
            "[extensions]\n\tworktreeConfig = true\n",
            "[filter \"lfs\"]\n\tclean = git-lfs clean -- %f\n\trequired = true\n",
            "[lfs]\n\tfetchexclude = *\n[lfs \"transfer\"]\n\tmaxretries = 3\n",
            // `scalar clone` writes these.
            "[core]\nconfigWriteLockTimeoutMS = 150\n[receive]\nautoGC = false\n",
            "[remote \"a\"]\nannex-ignore = true\n[submodule]\nfetchJobs = 8\n",
            "# [core]\n; fsmonitor = x\n",
            "[user]\nname = \"# fsmonitor\"\n",
        ] {
            assert_eq!(risky(text), Some(Vec::new()), "{text:?}");
        }
    }

    #[test]
    fn a_setting_matters_to_the_commands_that_obey_it() {
        // A setting, the commands to which it matters, and those to which it does not.
        for (text, matters, not) in [
            ("[gpg]\nformat = ssh", "", "log, commit -m x, push, st"),
            ("[diff]\nnoprefix = true", "", "diff, commit -m x, st"),
            ("[log]\nshowSignature = true", "", "log, show HEAD, st"),
            ("[core]\nexcludesFile = .ignored", "", "status, add ., st"),
            ("[core]\nexcludesFile = ~/.gitignore", "", "status, add ."),
            ("[core]\nexcludesFile = ~/.aws/credentials", "status, log", ""),
            ("[core]\nexcludesFile = ../x", "status", ""),
            ("[blame]\nignoreRevsFile = .git-blame-ignore-revs", "", "blame a, log"),
            ("[core]\neditor = x", "st, -c a.b=c commit", "commit, rebase -i main, status, log"),
            ("[core]\npager = x", "st", "log, diff, status"),
            ("[pager]\nlog = x", "st", "log, diff"),
            ("[alias]\nst = !x", "st, stauts", "status, commit -m st, push"),
            ("[credential]\nhelper = x", "push, fetch, pull, clone a", "status, commit -m x, log"),
            ("[core]\nsshCommand = x", "push, remote update, lfs pull", "add ., branch"),
            ("[url \"git@a:\"]\ninsteadOf = https://a/", "", "push, fetch, status"),
            ("[url \"ext::x\"]\ninsteadOf = https://a/", "push, fetch, st", "status, commit"),
            ("[url \"ext:\"]\ninsteadOf = https", "push", "status"),
            ("[remote \"a\"]\nuploadpack = x", "fetch, pull, st", "log, commit"),
            (
                "[gpg]\nprogram = x",
                "commit -m x, tag a, log, merge a, push",
                "rev-parse HEAD, check-ignore a",
            ),
            ("[filter \"x\"]\nclean = x", "status, add ., commit, blame a, log", "rev-parse HEAD"),
            ("[diff \"x\"]\ntextconv = x", "log -p, diff, show", "rev-parse HEAD"),
            ("[merge \"x\"]\ndriver = x", "merge a, pull, log, show", "rev-parse HEAD"),
            // Whatever reads the index asks it.
            ("[core]\nfsmonitor = x", "status, add ., fetch, show :f, check-ignore a", ""),
            ("[core]\nhooksPath = x", "commit, push, checkout a, status, log", ""),
            ("[trailer \"x\"]\ncommand = x", "commit --trailer a=b", "commit -m x, log"),
            ("[difftool \"x\"]\ncmd = x", "difftool, st", "diff, commit"),
            // So do the tools for working trees and for stacks of commits that are not git's own.
            ("[worktrunk]\ndefault-branch = main", "wt", "status, commit, push, log"),
            ("[svn-remote \"svn\"]\nurl = x", "svn fetch", "status, commit, push"),
            ("[annex]\nuuid = x", "status, add .", "rev-parse HEAD"),
            ("[hooks]\nallowNonAscii = true", "commit", ""),
            ("[core]\nworktree = /", "status, log, push, rev-parse HEAD", ""),
            ("[include]\npath = x", "status, log, push, rev-parse HEAD", ""),
            ("[never]\nheardOf = it", "status, log, push, rev-parse HEAD", ""),
        ] {
            let setting = parse(text).unwrap().remove(0);
            for (lines, expected) in [(matters, true), (not, false)] {
                for line in lines.split(", ").filter(|part| !part.is_empty()) {
                    let script = shell::parse(&format!("git {line}"), ShellDialect::Bash);
                    let git = GitUse::of(&script.commands[0]);
                    assert_eq!(setting.matters_to(&git), expected, "{text:?}: git {line}");
                }
            }
        }
    }

    #[test]
    fn a_branch_may_follow_a_remote_that_is_known_and_nothing_else() {
        let before = "[remote \"o\"]\nurl = a\n[branch \"m\"]\nremote = o\n";
        for (more, expected) in [
            ("", true),
            ("[branch \"x\"]\nremote = o\nmerge = refs/heads/x\n", true),
            ("[branch \"x\"]\nremote = .\n", true),
            // GitLens and the extension for pull requests write these whenever a branch is used.
            ("[branch \"x\"]\ngk-last-accessed = 2026-01-05T22:21:14.059Z\n", true),
            ("[branch \"x\"]\ngk-merge-target = o/main\n", true),
            ("[branch \"x\"]\ngithub-pr-owner-number = \"a#b#7\"\n", true),
            ("[branch \"x\"]\ngh-merge-base = main\n", true),
            ("[branch \"x\"]\nmergeOptions = -s x\n", false),
            ("[branch]\nautoSetupMerge = always\n", false),
            ("[branch \"x\"]\nremote = https://evil.example\n", false),
            ("[branch \"x\"]\npushRemote = o\n", false),
            ("[remote \"o\"]\nurl = b\n", false),
            ("[core]\nhooksPath = x\n", false),
            ("[core", false),
        ] {
            let after = format!("{before}{more}");
            let is_only = only_changes_tracking(before.as_bytes(), after.as_bytes());
            assert_eq!(is_only, expected, "{more:?}");
        }
        let before = before.as_bytes();
        assert!(only_changes_tracking(before, b"[remote \"o\"]\nurl = a\n"));
        assert!(!only_changes_tracking(before, b"[branch \"m\"]\nremote = o\n"));
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_no_value_hides_the_next_line(
            noise in "[a-z\\[\\]\"\\\\ =;#\n]{0,40}",
            value in "[a-zA-Z0-9 ./:@%-]{0,20}",
            quoted in "[a-z;# \\[\\]]{0,12}",
        ) {
            parse(&noise);
            let text = format!("[user]\nname = {value}\nemail = \"{quoted}\"\n[core]\npager=x\n");
            prop_assert_eq!(risky(&text), Some(vec!["core.pager".to_owned()]));
        }
    }
}
