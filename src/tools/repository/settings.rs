//! Parses a git config the way git does and tells which settings are harmless. Pure. A setting that
//! is not known to be harmless may start a program.

use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GitSetting {
    /// `section.key` in lower case, without the subsection.
    pub(super) key: String,
    /// The subsection, in its original case.
    pub(super) subsection: Option<String>,
    /// `None` for a key without a value, which means `true`.
    pub(super) value: Option<String>,
}

/// Sections in which no key starts a program.
const HARMLESS_SECTIONS: &[&str] = &[
    "advice",
    "branch",
    "color",
    "column",
    "feature",
    "index",
    "maintenance",
    "pack",
    "rerere",
    "status",
    "user",
    "worktree",
];

/// Keys that start no program.
const HARMLESS_KEYS: &[&str] = &[
    "am.threeway",
    "apply.whitespace",
    "commit.cleanup",
    "commit.gpgsign",
    "commit.template",
    "commit.verbose",
    "core.abbrev",
    "core.autocrlf",
    "core.bare",
    "core.bigfilethreshold",
    "core.checkroundtripencoding",
    "core.checkstat",
    "core.commentchar",
    "core.commitgraph",
    "core.compression",
    "core.eol",
    "core.filemode",
    "core.fscache",
    "core.hidedotfiles",
    "core.ignorecase",
    "core.ignorestat",
    "core.logallrefupdates",
    "core.longpaths",
    "core.multipackindex",
    "core.packedgitlimit",
    "core.precomposeunicode",
    "core.preloadindex",
    "core.protecthfs",
    "core.protectntfs",
    "core.quotepath",
    "core.repositoryformatversion",
    "core.safecrlf",
    "core.sharedrepository",
    "core.sparsecheckout",
    "core.sparsecheckoutcone",
    "core.symlinks",
    "core.trustctime",
    "core.untrackedcache",
    "core.whitespace",
    "diff.algorithm",
    "diff.colormoved",
    "diff.ignoresubmodules",
    "diff.mnemonicprefix",
    "diff.renamelimit",
    "diff.renames",
    "diff.submodule",
    "extensions.compatobjectformat",
    "extensions.objectformat",
    "extensions.partialclone",
    "extensions.preciousobjects",
    "extensions.refstorage",
    "extensions.relativeworktrees",
    "extensions.worktreeconfig",
    "fetch.prune",
    "fetch.prunetags",
    "fetch.parallel",
    "fetch.recursesubmodules",
    "fetch.writecommitgraph",
    "gc.auto",
    "gc.autodetach",
    "gc.pruneexpire",
    "gc.reflogexpire",
    "init.defaultbranch",
    "lfs.repositoryformatversion",
    "log.date",
    "log.decorate",
    "merge.conflictstyle",
    "merge.ff",
    "merge.renamelimit",
    "pull.ff",
    "pull.rebase",
    "push.autosetupremote",
    "push.default",
    "push.followtags",
    "rebase.autosquash",
    "rebase.autostash",
    "rebase.updaterefs",
    "remote.fetch",
    "remote.gh-resolved",
    "remote.mirror",
    "remote.partialclonefilter",
    "remote.promisor",
    "remote.prune",
    "remote.prunetags",
    "remote.pushdefault",
    "remote.skipdefaultupdate",
    "remote.skipfetchall",
    "remote.tagopt",
    "submodule.active",
    "submodule.branch",
    "submodule.fetchrecursesubmodules",
    "submodule.ignore",
    "submodule.recurse",
    "tag.gpgsign",
    "tag.sort",
];

/// Keys that are harmless with exactly this value: what `git lfs install --local` writes.
const HARMLESS_PAIRS: &[(&str, &str)] = &[
    ("filter.clean", "git-lfs clean -- %f"),
    ("filter.process", "git-lfs filter-process"),
    ("filter.required", "true"),
    ("filter.smudge", "git-lfs smudge -- %f"),
];

/// Sections of which each key names a program.
const SECTIONS_OF_PROGRAMS: &[&str] = &["alias", "hook", "pager"];

/// Keys that name a program.
const PROGRAM_KEYS: &[&str] = &[
    "browser.cmd",
    "core.alternaterefscommand",
    "core.askpass",
    "core.editor",
    "core.fsmonitor",
    "core.gitproxy",
    "core.pager",
    "core.sshcommand",
    "credential.helper",
    "diff.command",
    "diff.external",
    "diff.textconv",
    "difftool.cmd",
    "difftool.path",
    "filter.clean",
    "filter.process",
    "filter.smudge",
    "gpg.defaultkeycommand",
    "gpg.program",
    "guitool.cmd",
    "interactive.difffilter",
    "lfs.clean",
    "lfs.path",
    "lfs.smudge",
    "man.cmd",
    "merge.driver",
    "mergetool.cmd",
    "mergetool.path",
    "remote.receivepack",
    "remote.uploadpack",
    "sendemail.smtpserver",
    "sequence.editor",
    "submodule.update",
    "tar.command",
    "trailer.cmd",
    "trailer.command",
    "uploadpack.packobjectshook",
];

impl GitSetting {
    /// The files in a working tree that git runs because of the setting, or gives to a program that it runs.
    pub(super) fn programs(&self, top: &Path) -> Vec<PathBuf> {
        let section = self.key.split('.').next().unwrap_or_default();
        let line = self.value.as_deref().unwrap_or_default();
        let is_program = PROGRAM_KEYS.contains(&self.key.as_str())
            || SECTIONS_OF_PROGRAMS.contains(&section)
                && (section != "alias" || line.starts_with('!'));
        if !is_program {
            return Vec::new();
        }
        let words =
            line.split(|letter: char| letter.is_whitespace() || "\"'`!;|&()<>=".contains(letter));
        // A program that is not there yet is told by its path.
        let is_file = |word: &&str| {
            let path = top.join(word);
            match path.symlink_metadata() {
                Ok(found) => !found.is_dir(),
                Err(_) => word.contains('/') && section != "alias",
            }
        };
        let words =
            words.filter(|word| !word.is_empty() && !word.starts_with(['-', '~', '$', '%']));
        words.filter(is_file).map(|word| top.join(word)).collect()
    }

    /// The full name, as people write it.
    pub(super) fn name(&self) -> String {
        match (&self.subsection, self.key.split_once('.')) {
            (Some(middle), Some((section, key))) => format!("{section}.{middle}.{key}"),
            _ => self.key.clone(),
        }
    }

    /// Whether the setting cannot make git start a program.
    pub(super) fn is_harmless(&self) -> bool {
        let value = self.value.as_deref().unwrap_or("true");
        let section = self.key.split('.').next().unwrap_or_default();
        match self.key.as_str() {
            "core.fsmonitor" => ["false", "no", "off", "0"].contains(&value),
            // These are protected paths, which are not written without a question.
            "core.hookspath" => {
                let place = value.trim_end_matches('/');
                [".husky", ".husky/_", ".githooks"].contains(&place)
            }
            "remote.url" | "remote.pushurl" | "submodule.url" => is_plain_url(value),
            "submodule.update" => !value.starts_with('!'),
            key => {
                HARMLESS_KEYS.contains(&key)
                    || HARMLESS_SECTIONS.contains(&section)
                    || HARMLESS_PAIRS.contains(&(key, value))
            }
        }
    }
}

/// Whether a URL names no remote helper (`ext::…`) and is no option.
fn is_plain_url(address: &str) -> bool {
    !address.contains("::") && !address.starts_with('-')
}

/// Whether the only changes from `before` to `after` let branches track remotes that `before`
/// knows.
pub(crate) fn only_changes_tracking(before: &str, after: &str) -> bool {
    let (Ok(before), Ok(after)) = (parse(before), parse(after)) else { return false };
    let is_remote = |name: &str| {
        name == "."
            || before
                .iter()
                .any(|it| it.key == "remote.url" && it.subsection.as_deref() == Some(name))
    };
    let follows = |it: &GitSetting| match (it.key.as_str(), it.value.as_deref()) {
        ("branch.remote", Some(name)) => is_remote(name),
        ("branch.merge", Some(name)) => name.starts_with("refs/heads/"),
        ("branch.rebase" | "branch.description" | "branch.vscode-merge-base", _) => true,
        _ => false,
    };
    let new = after.iter().filter(|it| !before.contains(it));
    let mut gone = before.iter().filter(|it| !after.contains(it));
    new.into_iter().all(follows) && gone.all(|it| it.key.starts_with("branch."))
}

/// The text is no valid git config.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GitConfigError;

/// Parses a config file.
pub(super) fn parse(text: &str) -> Result<Vec<GitSetting>, GitConfigError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n");
    let mut rest = GitConfigParser(text.chars().collect(), 0);
    let mut section: Option<(String, Option<String>)> = None;
    let mut all = Vec::new();
    while let Some(char) = rest.next() {
        match char {
            ' ' | '\t' | '\n' | '\u{b}' | '\u{c}' | '\r' => {}
            '#' | ';' => rest.skip_line(),
            '[' => section = Some(rest.section()?),
            char if char.is_ascii_alphabetic() => {
                let (section, middle) = section.as_ref().ok_or(GitConfigError)?;
                let (key, value) = rest.setting(char)?;
                let key = format!("{section}.{key}");
                all.push(GitSetting { key, subsection: middle.clone(), value });
            }
            _ => return Err(GitConfigError),
        }
    }
    Ok(all)
}

/// The characters of the file and the position of the parser.
struct GitConfigParser(Vec<char>, usize);

impl GitConfigParser {
    fn next(&mut self) -> Option<char> {
        let char = self.peek()?;
        self.1 += 1;
        Some(char)
    }

    fn peek(&self) -> Option<char> {
        self.0.get(self.1).copied()
    }

    fn skip_line(&mut self) {
        while self.next().is_some_and(|it| it != '\n') {}
    }

    /// Parses a section header; `[` is consumed.
    fn section(&mut self) -> Result<(String, Option<String>), GitConfigError> {
        let mut name = String::new();
        loop {
            match self.next().ok_or(GitConfigError)? {
                ']' => break,
                ' ' | '\t' => return Ok((name, Some(self.subsection()?))),
                char if char.is_ascii_alphanumeric() || "-.".contains(char) => {
                    name.push(char.to_ascii_lowercase());
                }
                _ => return Err(GitConfigError),
            }
        }
        // The deprecated `[section.subsection]` syntax.
        Ok(match name.split_once('.') {
            Some((section, middle)) => (section.to_owned(), Some(middle.to_owned())),
            None => (name, None),
        })
    }

    /// Parses a subsection; the blank after the section's name is consumed.
    fn subsection(&mut self) -> Result<String, GitConfigError> {
        while matches!(self.peek(), Some(' ' | '\t')) {
            self.next();
        }
        let mut name = String::new();
        if self.next() != Some('"') {
            return Err(GitConfigError);
        }
        loop {
            match self.next().ok_or(GitConfigError)? {
                '"' => break,
                '\n' => return Err(GitConfigError),
                '\\' => match self.next().ok_or(GitConfigError)? {
                    '\n' => return Err(GitConfigError),
                    char => name.push(char),
                },
                char => name.push(char),
            }
        }
        if self.next() == Some(']') { Ok(name) } else { Err(GitConfigError) }
    }

    /// Parses a key and its value; the first letter of the key is consumed.
    fn setting(&mut self, first: char) -> Result<(String, Option<String>), GitConfigError> {
        let mut key = String::from(first.to_ascii_lowercase());
        while let Some(char) = self.peek().filter(|it| it.is_ascii_alphanumeric() || *it == '-') {
            key.push(char.to_ascii_lowercase());
            self.next();
        }
        while matches!(self.peek(), Some(' ' | '\t')) {
            self.next();
        }
        match self.next() {
            None | Some('\n') => Ok((key, None)),
            Some('=') => Ok((key, Some(self.value()?))),
            Some(_) => Err(GitConfigError),
        }
    }

    /// Parses a value; `=` is consumed.
    fn value(&mut self) -> Result<String, GitConfigError> {
        let mut value = String::new();
        // The length of the value without trailing blanks.
        let mut kept = 0;
        let mut is_quoted = false;
        loop {
            match self.next() {
                None | Some('\n') if is_quoted => return Err(GitConfigError),
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
                    match self.next().ok_or(GitConfigError)? {
                        '\n' => continue,
                        'n' => value.push('\n'),
                        't' => value.push('\t'),
                        'b' => value.push('\u{8}'),
                        char @ ('\\' | '"') => value.push(char),
                        _ => return Err(GitConfigError),
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
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn risky(text: &str) -> Result<Vec<String>, GitConfigError> {
        let all = parse(text)?;
        Ok(all.iter().filter(|it| !it.is_harmless()).map(GitSetting::name).collect())
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
            "# [core]\n; fsmonitor = x\n",
            "[user]\nname = \"# fsmonitor\"\n",
        ] {
            assert_eq!(risky(text), Ok(Vec::new()), "{text:?}");
        }
    }

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
            assert_eq!(risky(text), Err(GitConfigError), "{text:?}");
        }
    }

    #[test]
    fn a_branch_may_follow_a_remote_that_is_known_and_nothing_else() {
        let before = "[remote \"o\"]\nurl = a\n[branch \"m\"]\nremote = o\n";
        for (more, expected) in [
            ("", true),
            ("[branch \"x\"]\nremote = o\nmerge = refs/heads/x\n", true),
            ("[branch \"x\"]\nremote = .\n", true),
            ("[branch \"x\"]\nremote = https://evil.example\n", false),
            ("[branch \"x\"]\npushRemote = o\n", false),
            ("[remote \"o\"]\nurl = b\n", false),
            ("[core]\nhooksPath = x\n", false),
            ("[core", false),
        ] {
            assert_eq!(
                only_changes_tracking(before, &format!("{before}{more}")),
                expected,
                "{more:?}"
            );
        }
        assert!(only_changes_tracking(before, "[remote \"o\"]\nurl = a\n"));
        assert!(!only_changes_tracking(before, "[branch \"m\"]\nremote = o\n"));
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_no_value_hides_the_next_line(
            noise in "[a-z\\[\\]\"\\\\ =;#\n]{0,40}",
            value in "[a-zA-Z0-9 ./:@%-]{0,20}",
            quoted in "[a-z;# \\[\\]]{0,12}",
        ) {
            drop(parse(&noise));
            let text = format!("[user]\nname = {value}\nemail = \"{quoted}\"\n[core]\npager=x\n");
            prop_assert_eq!(risky(&text), Ok(vec!["core.pager".to_owned()]));
        }
    }
}
