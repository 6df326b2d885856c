//! Path globs with the syntax of `.gitignore`, matched against paths with symlinks resolved. Reads
//! no files.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, OnceLock};

use globset::{GlobBuilder, GlobSet, escape};

use super::rule::PathBases;
use turnwright_types::effect::is_secret_path;
use turnwright_types::look_alike::composed;

/// A path with this name for its first part with wildcards; `None` if they cannot stand for it.
fn expanded(path: &Path, name: &str) -> Option<PathBuf> {
    let text = slashed(path);
    let at = text.find(['*', '?', '['])?;
    let start = text[..at].rfind('/')? + 1;
    let end = text[at..].find('/').map_or(text.len(), |length| at + length);
    let last = text[at..end].rsplit(['*', '?', ']']).next().unwrap_or_default();
    let fits = start < at && name.starts_with(&text[start..at]) && name.ends_with(last);
    fits.then(|| [&text[..start], name, &text[end..]].concat().into())
}

/// Returns true if a text has a character that makes a part of a glob more than a literal name.
fn has_wildcard(text: &str) -> bool {
    text.bytes().any(is_wildcard)
}

fn is_wildcard(byte: u8) -> bool {
    matches!(byte, b'*' | b'?' | b'[' | b']' | b'{' | b'}' | b'\\')
}

/// A path glob. It also matches everything below a folder that it matches.
#[derive(Clone)]
pub struct Glob {
    /// The text as written in settings; empty for the glob that matches every path.
    text: String,
    base: GlobBase,
    /// The pattern below the base.
    tail: String,
    ignore_case: bool,
    // In an `Arc`, because rules are cloned into findings. `None` matches every path.
    matcher: Option<Arc<Matcher>>,
    /// True if the project's pattern also matches from the root of the file system.
    is_also_from_root: bool,
    /// The same pattern with symlinks in its beginning resolved, from the root of the file system.
    link_targets: Vec<Arc<Matcher>>,
}

/// The folder that a glob is relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GlobBase {
    /// Every folder of the session.
    Project,
    /// The user's home.
    Home,
    /// The root of the file system.
    Root,
}

/// Matches paths relative to a base, and everything below a match.
enum Matcher {
    /// Literal names, one below the other. Most globs are no more than that, and comparing names is
    /// fast.
    Names {
        /// True if they match at any depth.
        anywhere: bool,
        /// True if only paths below the last name match.
        only_below: bool,
        names: Vec<String>,
    },
    /// A glob that is compiled when it is first used: compiling hundreds of them would delay the
    /// start of a session.
    Glob { tail: String, compiled: OnceLock<Option<GlobSet>> },
}

impl Glob {
    /// Parses a glob. `/x` is relative to the session's folders, `~/x` to the home folder, and
    /// `//x` is absolute; any other `x` matches anywhere in the session's folders. Rules that deny
    /// should use `ignore_case`, because some file systems ignore case; in them, `/x/y` is also that absolute path,
    /// unless one of its first two parts has a wildcard.
    ///
    /// # Errors
    /// The error says what is wrong with the text.
    pub fn parse(text: &str, ignore_case: bool) -> Result<Glob, String> {
        let (base, tail) = split(text)?;
        let matcher = Some(Arc::new(Matcher::new(&tail, ignore_case)?));
        // Most people write `/home/me/x` for an absolute path.
        let literal_parts = tail.split('/').take(2).filter(|part| !has_wildcard(part)).count();
        let is_also_from_root =
            ignore_case && base == GlobBase::Project && text.starts_with('/') && literal_parts == 2;
        let drive = on_drive(&tail).filter(|_| is_also_from_root);
        let of_drive = drive.map(|tail| Matcher::new(&tail, ignore_case)).transpose()?;
        Ok(Glob {
            text: text.to_owned(),
            base,
            tail,
            ignore_case,
            matcher,
            is_also_from_root,
            link_targets: of_drive.map(Arc::new).into_iter().collect(),
        })
    }

    /// The glob that matches every path.
    pub fn everything() -> Glob {
        Glob {
            text: String::new(),
            base: GlobBase::Root,
            tail: "**".to_owned(),
            ignore_case: false,
            matcher: None,
            is_also_from_root: false,
            link_targets: Vec::new(),
        }
    }

    /// True if it matches every path.
    pub(crate) fn is_everything(&self) -> bool {
        self.matcher.is_none()
    }

    /// True if it matches this path, which must have symlinks resolved.
    pub fn matches(&self, path: &Path, bases: &PathBases) -> bool {
        let Some(matcher) = &self.matcher else { return true };
        let ignore_case = self.ignore_case;
        let is_below = |base: &PathBuf| {
            path.strip_prefix(base).is_ok_and(|rest| matcher.is_match(rest, ignore_case))
        };
        let from_root = below_root(path);
        self.link_targets.iter().any(|target| target.is_match(from_root, ignore_case))
            || match self.base {
                GlobBase::Project => {
                    bases.roots.iter().any(is_below)
                        || self.is_also_from_root && matcher.is_match(from_root, ignore_case)
                }
                GlobBase::Home => bases.home.iter().any(is_below),
                GlobBase::Root => matcher.is_match(from_root, ignore_case),
            }
    }

    /// The paths that it names if it has no wildcards, otherwise none. For a name that matches at
    /// any depth, the path directly in each base.
    pub(super) fn literal_paths(&self, bases: &PathBases) -> Vec<PathBuf> {
        let tail = self.tail.strip_prefix("**/").unwrap_or(&self.tail).trim_end_matches("/**");
        if has_wildcard(tail) {
            return Vec::new();
        }
        self.bases(bases).into_iter().map(|base| base.join(tail)).collect()
    }

    /// True if it matches nothing but [`literal_paths`](Self::literal_paths) and what is below them.
    pub(super) fn is_literal(&self) -> bool {
        !self.tail.starts_with("**/") && !has_wildcard(self.tail.trim_end_matches("/**"))
    }

    /// True if it matches what the shell may put for the first part of a path that has wildcards and begins with other
    /// characters, as `.e*` does.
    pub(crate) fn matches_expansion(&self, path: &Path, bases: &PathBases) -> bool {
        let literal = self.literal_paths(bases);
        let names = self.tail.split('/').filter(|name| !name.is_empty() && !has_wildcard(name));
        let mut paths = names.filter_map(|name| expanded(path, name));
        paths.any(|path| self.matches(&path, bases) || literal.contains(&path))
    }

    fn bases<'a>(&self, bases: &'a PathBases) -> Vec<&'a Path> {
        match self.base {
            GlobBase::Project => {
                let root = self.is_also_from_root.then_some(Path::new("/"));
                bases.roots.iter().map(PathBuf::as_path).chain(root).collect()
            }
            GlobBase::Home => bases.home.iter().map(PathBuf::as_path).collect(),
            GlobBase::Root => vec![Path::new("/")],
        }
    }

    /// True if its last part is literal and names this secret file, or a folder above it that holds
    /// only secrets.
    pub(crate) fn names_secret(&self, path: &Path, bases: &PathBases) -> bool {
        let named = self.tail.trim_end_matches("/**").trim_end_matches("/*");
        let last = named.rsplit('/').next().unwrap_or_default();
        !has_wildcard(last)
            && self.matches(path, bases)
            && path.ancestors().any(|ancestor| {
                is_secret_path(ancestor)
                    && ancestor.file_name().is_some_and(|name| name.to_string_lossy() == last)
            })
    }

    /// Makes it also match what symlinks in its literal beginning lead to: paths are judged with
    /// symlinks resolved, and a rule that denies `/secrets` means whatever can be reached by that
    /// name. Must not be used for `allow` rules: a symlink in the project must not extend a
    /// permission beyond it.
    pub(super) fn follow_links(&mut self, bases: &PathBases, resolve: &dyn Fn(&Path) -> PathBuf) {
        let tail = self.tail.strip_prefix("**/").unwrap_or(&self.tail);
        let end = match tail.bytes().position(is_wildcard) {
            Some(at) => tail[..at].rfind('/').unwrap_or_default(),
            None => tail.len(),
        };
        let (start, rest) = tail.split_at(end);
        for base in self.bases(bases).into_iter().filter(|_| !start.is_empty()) {
            let named = base.join(start);
            let real = resolve(&named);
            if real != named {
                let glob = escape(&slashed(below_root(&real))) + rest;
                self.link_targets.extend(Matcher::new(&glob, self.ignore_case).ok().map(Arc::new));
            }
        }
    }
}

/// Splits a glob into its base and the pattern below it.
fn split(text: &str) -> Result<(GlobBase, String), String> {
    if text.chars().any(char::is_control) {
        return Err("it contains a control character".into());
    }
    if text.split('\\').skip(1).any(|rest| rest.starts_with(char::is_alphanumeric)) {
        let why = "folders are separated by `/`, also on Windows; `\\` makes a wildcard an \
                   ordinary character";
        return Err(why.into());
    }
    let (base, tail) = if let Some(tail) = text.strip_prefix("//") {
        (GlobBase::Root, on_drive(tail).unwrap_or_else(|| tail.to_owned()))
    } else if let Some(tail) = text.strip_prefix("~/") {
        (GlobBase::Home, tail.to_owned())
    } else if text.starts_with(['~', '!']) || names_drive(text.trim_start_matches('/')) {
        let why = "a glob must not start with `~`, `!` or a drive, except for `~/`, the home \
                   folder, and `//C:/`";
        return Err(why.into());
    } else if let Some(tail) = text.strip_prefix('/').or_else(|| text.strip_prefix("./")) {
        (GlobBase::Project, tail.to_owned())
    } else if text.trim_matches('/').is_empty() {
        return Err("it is empty".into());
    } else {
        (GlobBase::Project, format!("**/{text}"))
    };
    let tail = tail.trim_end_matches('/');
    if tail.is_empty() {
        return Ok((base, "**".to_owned()));
    }
    if tail.split('/').any(|part| part.is_empty() || part == "." || part == "..") {
        return Err("a part is empty, `.` or `..`, which never matches".into());
    }
    Ok((base, tail.to_owned()))
}

/// The pattern for a drive of Windows that its first part names, as `c` does in rules of Claude Code: `//c/x`.
fn on_drive(tail: &str) -> Option<String> {
    let (first, rest) = tail.split_once('/').unwrap_or((tail, ""));
    let drive = first.trim_end_matches(':').to_ascii_uppercase() + ":";
    names_drive(&drive).then(|| format!("{drive}/{rest}"))
}

/// Returns true on Windows if a text begins with a drive, which belongs behind `//`.
fn names_drive(text: &str) -> bool {
    cfg!(windows) && matches!(text.as_bytes(), [letter, b':', ..] if letter.is_ascii_alphabetic())
}

impl Matcher {
    fn new(tail: &str, ignore_case: bool) -> Result<Matcher, String> {
        // A rule that denies holds for every Unicode form of a name, because they look the same.
        let tail = if ignore_case { composed(tail) } else { Cow::Borrowed(tail) };
        if let Some(names) = literal_names(&tail) {
            return Ok(names);
        }
        if !is_certainly_valid(&tail) {
            // Checked before anything is appended: an unclosed bracket must not close over that.
            build_glob(&tail, ignore_case)?;
        }
        Ok(Matcher::Glob { tail: tail.into_owned(), compiled: OnceLock::new() })
    }

    /// Returns true if a path matches. `ignore_case` is the same as for [`new`](Self::new).
    fn is_match(&self, path: &Path, ignore_case: bool) -> bool {
        match path.to_str().filter(|_| ignore_case).map(composed) {
            Some(Cow::Owned(path)) => self.is_match_of_form(Path::new(&path), ignore_case),
            _ => self.is_match_of_form(path, ignore_case),
        }
    }

    fn is_match_of_form(&self, path: &Path, ignore_case: bool) -> bool {
        let (anywhere, only_below, names) = match self {
            Matcher::Names { anywhere, only_below, names } => (*anywhere, *only_below, names),
            // A glob that is too large to compile matches everything in rules that deny, and
            // nothing in rules that allow.
            Matcher::Glob { tail, compiled } => {
                let compiled = compiled.get_or_init(|| compile(tail, ignore_case).ok());
                return compiled.as_ref().map_or(ignore_case, |matcher| matcher.is_match(path));
            }
        };
        // `C:` in a pattern stands for `C:\\`.
        let mut rest = path.components().filter(|component| *component != Component::RootDir);
        loop {
            let mut parts = rest.clone();
            let matches = names.iter().all(|name| {
                parts.next().is_some_and(|part| is_same_name(part.as_os_str(), name, ignore_case))
            });
            if matches && (!only_below || parts.next().is_some()) {
                return true;
            }
            if !anywhere || rest.next().is_none() {
                return false;
            }
        }
    }
}

fn is_same_name(part: &OsStr, name: &str, ignore_case: bool) -> bool {
    if ignore_case { part.eq_ignore_ascii_case(name) } else { part == name }
}

/// The fast method for a pattern of literal names; `None` if it has wildcards.
fn literal_names(tail: &str) -> Option<Matcher> {
    if tail == "**" {
        return Some(Matcher::Names { anywhere: false, only_below: false, names: Vec::new() });
    }
    let (anywhere, rest) = tail.strip_prefix("**/").map_or((false, tail), |rest| (true, rest));
    let (only_below, rest) = rest.strip_suffix("/**").map_or((false, rest), |rest| (true, rest));
    (!has_wildcard(rest)).then(|| {
        let names = rest.split('/').map(str::to_owned).collect();
        Matcher::Names { anywhere, only_below, names }
    })
}

fn compile(tail: &str, ignore_case: bool) -> Result<GlobSet, String> {
    let below = if tail.ends_with("/**") || tail == "**" { "" } else { "{,/**}" };
    let glob = build_glob(&format!("{tail}{below}"), ignore_case)?;
    // Unlike `GlobSet`, `GlobMatcher` panics if the compiled glob is too large.
    GlobSet::builder().add(glob).build().map_err(|error| error.kind().to_string())
}

fn build_glob(glob: &str, ignore_case: bool) -> Result<globset::Glob, String> {
    GlobBuilder::new(glob)
        .literal_separator(true)
        .backslash_escape(true)
        .empty_alternates(true)
        .case_insensitive(ignore_case)
        .build()
        .map_err(|error| error.kind().to_string())
}

/// Returns true if a glob consists of nothing but parts that are easy to check. Others are built to see what is wrong
/// with them, which takes twenty times as long.
fn is_certainly_valid(glob: &str) -> bool {
    let mut is_in_braces = false;
    let mut rest = glob.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        match first {
            b'\\' | b']' => return false,
            b'{' | b'}' if is_in_braces == (*first == b'{') => return false,
            b'{' | b'}' => is_in_braces = !is_in_braces,
            b'[' => {
                let Some(end) = rest.iter().position(|byte| *byte == b']') else { return false };
                let (class, after) = rest.split_at(end);
                if !is_plain_class(class) {
                    return false;
                }
                rest = &after[1..];
            }
            _ => {}
        }
    }
    !is_in_braces
}

/// Returns true if the inside of a character class consists of letters, digits and ranges of them.
fn is_plain_class(class: &[u8]) -> bool {
    let mut rest = class.strip_prefix(b"!").unwrap_or(class);
    if rest.is_empty() {
        return false;
    }
    while let [first, after @ ..] = rest {
        rest = match after {
            [b'-', last, after @ ..] if first <= last && last.is_ascii_alphanumeric() => after,
            after => after,
        };
        if !first.is_ascii_alphanumeric() {
            return false;
        }
    }
    true
}

fn below_root(path: &Path) -> &Path {
    let mut parts = path.components();
    if path.has_root() && parts.next() == Some(Component::RootDir) { parts.as_path() } else { path }
}

/// A path as globs are written, with `/` between its parts. In a glob `\\` quotes.
pub(super) fn slashed(path: &Path) -> String {
    let text = path.to_string_lossy();
    if cfg!(windows) { text.replace('\\', "/") } else { text.into_owned() }
}

impl fmt::Display for Glob {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl fmt::Debug for Glob {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Glob({:?})", self.text)
    }
}

impl PartialEq for Glob {
    fn eq(&self, other: &Glob) -> bool {
        self.text == other.text && self.ignore_case == other.ignore_case
    }
}

impl Eq for Glob {}

impl Hash for Glob {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
        self.ignore_case.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bases() -> PathBases {
        PathBases { roots: vec!["/ws".into(), "/other".into()], home: Some("/home/me".into()) }
    }

    #[test]
    fn globs_match_as_in_gitignore() {
        let table = [
            // glob, what it matches, what it does not match
            (
                ".env",
                "/ws/.env /ws/a/.env /ws/.env/b /other/.env",
                "/ws/.envrc /home/me/.env /.env",
            ),
            ("*.pem", "/ws/a.pem /ws/a/b.pem", "/ws/a.pem.txt /tmp/a.pem"),
            ("src/*.rs", "/ws/src/a.rs /ws/x/src/a.rs", "/ws/src/a/b.rs /ws/a.rs"),
            ("/src", "/ws/src /ws/src/a/b", "/ws/a/src /ws/src2 /src"),
            ("./src", "/ws/src /ws/src/a/b", "/ws/a/src"),
            ("/src/", "/ws/src /ws/src/a", "/ws/a/src"),
            ("/src/**", "/ws/src/a /ws/src/a/b", "/ws/src /ws/a/src/b"),
            ("/a/**/z", "/ws/a/z /ws/a/b/c/z /ws/a/z/below", "/ws/z /ws/a/zz"),
            ("/", "/ws /ws/a /other/b", "/wsx /etc"),
            ("**", "/ws/a /ws/a/b", "/etc/a"),
            ("//etc", "/etc /etc/a", "/ws/etc /etcetera"),
            ("//**/.env", "/.env /a/.env /ws/.env", "/a/.envy"),
            ("//", "/ /a /ws/b", ""),
            ("~/.ssh", "/home/me/.ssh /home/me/.ssh/id", "/home/me/a/.ssh /home/you/.ssh"),
            ("~/", "/home/me/a", "/home/me2/a"),
            ("/a?c", "/ws/abc", "/ws/ac /ws/a/c"),
            ("/[ab]", "/ws/a /ws/b/x", "/ws/c"),
            ("/{a,b}.rs", "/ws/a.rs /ws/b.rs", "/ws/c.rs"),
            ("/a,b", "/ws/a,b /ws/a,b/c", "/ws/a /ws/b"),
            (r"/\[id\].tsx", "/ws/[id].tsx", "/ws/i.tsx"),
            ("/Make", "/ws/Make", "/ws/make"),
            #[cfg(windows)]
            ("//C:/secrets", r"C:\secrets C:\secrets\a C:/secrets/b/c", r"C:\secret D:\secrets"),
            #[cfg(windows)]
            ("//C:/secrets/*.pem", r"C:\secrets\a.pem", r"C:\secrets\a.txt C:\a.pem"),
            #[cfg(not(windows))]
            ("//c/x", "/c/x /c/x/a", "/ws/c/x /x C:/x"),
            #[cfg(windows)]
            ("//c/secrets/*.pem", r"C:\secrets\a.pem", r"C:\secrets\a.txt D:\secrets\a.pem"),
        ];
        for (text, meant, other) in table {
            let glob = Glob::parse(text, false).unwrap();
            for path in meant.split_whitespace() {
                assert!(glob.matches(Path::new(path), &bases()), "{text}: {path}");
            }
            for path in other.split_whitespace() {
                assert!(!glob.matches(Path::new(path), &bases()), "{text}: {path}");
            }
        }
        for (rule, path) in [
            ("/\u{dc}ber", "/ws/U\u{308}ber/a"),
            ("/U\u{308}ber", "/ws/\u{dc}ber"),
            ("\u{dc}*.md", "/ws/a/U\u{308}b.md"),
            #[cfg(windows)]
            ("/c/Secrets/*.pem", r"C:\secrets\a.pem"),
        ] {
            assert!(Glob::parse(rule, true).unwrap().matches(Path::new(path), &bases()), "{rule}");
            assert!(
                !Glob::parse(rule, false).unwrap().matches(Path::new(path), &bases()),
                "{rule}"
            );
        }
        assert_eq!(Glob::parse("/C:/secrets", true).is_err(), cfg!(windows));
        assert!(Glob::parse("/Make", true).unwrap().matches(Path::new("/ws/mAKE/a"), &bases()));
        assert!(Glob::everything().matches(Path::new("/any/thing"), &bases()));
    }

    #[test]
    fn a_path_from_the_root_is_denied_there_as_well() {
        for (text, ignore_case, path, expected) in [
            ("/home/me/.ssh/**", true, "/home/me/.ssh/id", true),
            ("/home/me/.ssh/**", true, "/ws/home/me/.ssh/id", true),
            ("/etc/shadow", true, "/etc/shadow", true),
            ("/etc/shadow", false, "/etc/shadow", false),
            ("/src/**", true, "/src/a", false),
            ("/src", true, "/src", false),
            ("./etc/shadow", true, "/etc/shadow", false),
            ("etc/shadow", true, "/etc/shadow", false),
            ("/*/me/.ssh", true, "/home/me/.ssh", false),
        ] {
            let glob = Glob::parse(text, ignore_case).unwrap();
            assert_eq!(glob.matches(Path::new(path), &bases()), expected, "{text} {path}");
        }
        let in_src = PathBases { roots: vec!["/src/app".into()], home: None };
        let glob = Glob::parse("/src/**", true).unwrap();
        assert!(glob.matches(Path::new("/src/app/src/a"), &in_src));
        assert!(!glob.matches(Path::new("/src/app/a"), &in_src));
        // The sandbox hides it from commands as well, also where a link leads to it.
        let mut glob = Glob::parse("/var/run/x/**", true).unwrap();
        let hidden = glob.literal_paths(&bases());
        assert_eq!(hidden, ["/ws/var/run/x", "/other/var/run/x", "/var/run/x"].map(PathBuf::from));
        let resolve = |path: &Path| match path.strip_prefix("/var/run") {
            Ok(below) => Path::new("/run").join(below),
            Err(_) => path.to_path_buf(),
        };
        glob.follow_links(&bases(), &resolve);
        assert!(glob.matches(Path::new("/run/x/key"), &bases()));
    }

    #[test]
    fn globs_that_never_match_are_rejected() {
        for text in
            ["", "../x", "/a/../b", "a/./b", "~", "~you/x", "!x", "/a//b", "///a", "[", "a\nb"]
        {
            assert!(Glob::parse(text, false).is_err(), "{text:?}");
        }
    }

    proptest::proptest! {
        /// The fast method for literal names must give the same results as the glob.
        #[test]
        fn literal_names_match_as_their_glob_does(
            tail in r"(\*\*/)?[aAb]{1,2}(/[aAb]{1,2}){0,2}(/\*\*)?|\*\*",
            path in r"([aAb]{1,2}(/[aAb]{1,2}){0,4})?",
            ignore_case in proptest::bool::ANY,
        ) {
            let quick = Matcher::new(&tail, ignore_case).unwrap();
            assert!(matches!(quick, Matcher::Names { .. }), "{tail}");
            let path = Path::new(&path);
            let compiled = compile(&tail, ignore_case).unwrap();
            // Paths with symlinks resolved have no such parts.
            if !path.components().any(|component| !matches!(component, Component::Normal(_))) {
                let found = quick.is_match(path, ignore_case);
                assert_eq!(found, compiled.is_match(path), "{tail} {path:?}");
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn a_glob_that_is_not_built_is_valid(glob in r"[a-cZ019*?{}\[\]!^,./\\-]{0,12}") {
            if is_certainly_valid(&glob) {
                build_glob(&glob, true).unwrap();
            }
        }
    }

    #[test]
    fn usual_globs_are_not_built_to_see_whether_they_are_valid() {
        for glob in ["**/*.rs", "a/{b,c}/[a-z0-9]*.?", "[!a-c]", "[xyz]", "é"] {
            assert!(is_certainly_valid(glob), "{glob}");
        }
        for glob in ["[", "[]", "[z-a]", "[!]", "{", "}", "{{a,b}}", "a\\", "[a-]", "[^a]", "]"] {
            assert!(!is_certainly_valid(glob), "{glob}");
        }
    }

    #[test]
    fn links_in_the_literal_beginning_are_followed() {
        let resolve = |path: &Path| match path {
            path if path == Path::new("/ws/secrets") => "/data/[1]".into(),
            path if path == Path::new("/var/run") => "/run".into(),
            path => path.to_path_buf(),
        };
        for (text, meant) in [
            ("/secrets", "/data/[1]/a"),
            ("/secrets/*.pem", "/data/[1]/a.pem"),
            ("secrets", "/data/[1]/a"),
            ("//var/run/**", "/run/x"),
        ] {
            let mut glob = Glob::parse(text, true).unwrap();
            assert!(!glob.matches(Path::new(meant), &bases()), "{text}");
            glob.follow_links(&bases(), &resolve);
            assert!(glob.matches(Path::new(meant), &bases()), "{text}");
            assert!(!glob.matches(Path::new("/data/2/a"), &bases()), "{text}");
        }
    }
}
