//! Which paths a rule means: globs as `.gitignore` has them, against real paths. Looks at no file.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, OnceLock};

use globset::{GlobBuilder, GlobSet, escape};

use super::rule::Ground;
use turnwright_types::effect::is_secret;

/// What makes a part of a glob more than a name.
const WILD: [char; 7] = ['*', '?', '[', ']', '{', '}', '\\'];

/// A glob. What lies below a folder that it means is meant too.
#[derive(Clone)]
pub struct Glob {
    /// As it stands in a file; empty for every path.
    text: String,
    base: Base,
    /// What is matched below the base.
    tail: String,
    any_case: bool,
    // In an `Arc`, because rules are copied when they have decided.
    matcher: Option<Arc<Matcher>>,
    /// Where links in its beginning lead, from the root of the file system.
    led: Vec<Arc<Matcher>>,
}

/// Where a glob starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    /// In any folder of the session.
    Project,
    /// In the user's home.
    Home,
    /// At the root of the file system.
    Root,
}

/// What is matched below a base, and all that lies below what it means.
struct Matcher {
    tail: String,
    any_case: bool,
    shape: Shape,
}

/// How paths are compared with it.
enum Shape {
    /// Names, one below the other: most globs are no more, and need nothing but to be compared.
    Names {
        /// At any depth.
        anywhere: bool,
        /// Means only what lies below the last of them.
        is_below: bool,
        names: Vec<String>,
    },
    /// Compiled when it is first asked, because that takes some time: a file may hold hundreds, and a
    /// session is not to wait for them.
    Wild(OnceLock<Option<GlobSet>>),
}

impl Glob {
    /// Understands a glob. `/x` starts in the project, `~/x` at home, `//x` at the root; any other
    /// one means `x` anywhere in the project. A ban is better off with `any_case`: some file
    /// systems do not tell names apart by it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str, any_case: bool) -> Result<Glob, String> {
        let (base, tail) = split(text)?;
        let matcher = Some(Arc::new(Matcher::new(&tail, any_case)?));
        Ok(Glob { text: text.to_owned(), base, tail, any_case, matcher, led: Vec::new() })
    }

    /// The one that means every path.
    pub fn everything() -> Glob {
        Glob {
            text: String::new(),
            base: Base::Root,
            tail: "**".to_owned(),
            any_case: false,
            matcher: None,
            led: Vec::new(),
        }
    }

    /// Whether it means every path.
    pub fn is_everything(&self) -> bool {
        self.matcher.is_none()
    }

    /// Whether it means this real path.
    pub fn matches(&self, path: &Path, ground: &Ground) -> bool {
        let Some(matcher) = &self.matcher else { return true };
        let is_below =
            |base: &PathBuf| path.strip_prefix(base).is_ok_and(|rest| matcher.is_match(rest));
        let is_led = self.led.iter().any(|it| it.is_match(below_root(path)));
        is_led
            || match self.base {
                Base::Project => ground.roots.iter().any(is_below),
                Base::Home => ground.home.iter().any(is_below),
                Base::Root => matcher.is_match(below_root(path)),
            }
    }

    /// The paths that it names, as they are written; none if it holds a pattern. Of what it means
    /// in any folder of the project, that in the project's own.
    pub(super) fn places(&self, ground: &Ground) -> Vec<PathBuf> {
        let tail = self.tail.strip_prefix("**/").unwrap_or(&self.tail);
        let tail = tail.trim_end_matches("/**");
        if tail.contains(WILD) {
            return Vec::new();
        }
        self.bases(ground).iter().map(|it| it.join(tail)).collect()
    }

    fn bases(&self, ground: &Ground) -> Vec<PathBuf> {
        match self.base {
            Base::Project => ground.roots.clone(),
            Base::Home => ground.home.iter().cloned().collect(),
            Base::Root => vec![PathBuf::from("/")],
        }
    }

    /// Whether its literal end names this secret file, or a folder above it that holds secrets only.
    pub fn names_secret(&self, path: &Path, ground: &Ground) -> bool {
        let named = self.tail.trim_end_matches("/**").trim_end_matches("/*");
        let last = named.rsplit('/').next().unwrap_or_default();
        !last.contains(WILD)
            && self.matches(path, ground)
            && path.ancestors().any(|it| {
                is_secret(it) && it.file_name().is_some_and(|name| name.to_string_lossy() == last)
            })
    }

    /// Lets it mean also what links in its beginning lead to: paths are real when they are judged,
    /// and who bans `/secrets` means what can be reached by that name. For bans only: a link of
    /// the project must not lead a permission out of it.
    pub(super) fn follow(&mut self, ground: &Ground, real: &dyn Fn(&Path) -> PathBuf) {
        let tail = self.tail.strip_prefix("**/").unwrap_or(&self.tail);
        let parts: Vec<_> = tail.split('/').collect();
        let literal = parts.iter().take_while(|it| !it.contains(WILD)).count();
        let (begin, rest) = parts.split_at(literal);
        for base in self.bases(ground).iter().filter(|_| literal > 0) {
            let named = base.join(begin.join("/"));
            let real = real(&named);
            if real != named {
                let mut glob = escape(&below_root(&real).to_string_lossy());
                for part in rest {
                    glob.push_str(&format!("/{part}"));
                }
                self.led.extend(Matcher::new(&glob, self.any_case).ok().map(Arc::new));
            }
        }
    }
}

/// The base, and a glob below it.
fn split(text: &str) -> Result<(Base, String), String> {
    if text.chars().any(char::is_control) {
        return Err("it holds a control character".to_owned());
    }
    let (base, tail) = if let Some(tail) = text.strip_prefix("//") {
        (Base::Root, tail.to_owned())
    } else if let Some(tail) = text.strip_prefix("~/") {
        (Base::Home, tail.to_owned())
    } else if let Some(tail) = text.strip_prefix('/').or_else(|| text.strip_prefix("./")) {
        (Base::Project, tail.to_owned())
    } else if text.starts_with(['~', '!']) {
        return Err("a glob does not start like that; `~/` is the home folder".to_owned());
    } else if text.trim_matches('/').is_empty() {
        return Err("it is empty".to_owned());
    } else {
        (Base::Project, format!("**/{text}"))
    };
    let tail = tail.trim_end_matches('/');
    if tail.is_empty() {
        return Ok((base, "**".to_owned()));
    }
    if tail.split('/').any(|it| it.is_empty() || it == "." || it == "..") {
        return Err("no real path has a part that is empty, `.` or `..`".to_owned());
    }
    Ok((base, tail.to_owned()))
}

impl Matcher {
    fn new(tail: &str, any_case: bool) -> Result<Matcher, String> {
        let shape = names(tail).unwrap_or_default();
        if matches!(shape, Shape::Wild(_)) {
            // As it is: brackets that are left open must not close over what is added.
            build(tail, any_case)?;
        }
        Ok(Matcher { tail: tail.to_owned(), any_case, shape })
    }

    fn is_match(&self, path: &Path) -> bool {
        let (anywhere, is_below, names) = match &self.shape {
            Shape::Names { anywhere, is_below, names } => (*anywhere, *is_below, names),
            // What is too much to compile bans everything and permits nothing.
            Shape::Wild(compiled) => {
                let compiled = compiled.get_or_init(|| compile(&self.tail, self.any_case).ok());
                return compiled.as_ref().map_or(self.any_case, |it| it.is_match(path));
            }
        };
        let is_name = |part: Component<'_>, name: &str| match part.as_os_str() {
            part if self.any_case => part.eq_ignore_ascii_case(name),
            part => part == name,
        };
        let mut rest = path.components();
        loop {
            let mut parts = rest.clone();
            let begins = names.iter().all(|name| parts.next().is_some_and(|it| is_name(it, name)));
            if begins && (!is_below || parts.next().is_some()) {
                return true;
            }
            if !anywhere || rest.next().is_none() {
                return false;
            }
        }
    }
}

impl Default for Shape {
    fn default() -> Shape {
        Shape::Wild(OnceLock::new())
    }
}

/// A tail that holds nothing but names.
fn names(tail: &str) -> Option<Shape> {
    if tail == "**" {
        return Some(Shape::Names { anywhere: false, is_below: false, names: Vec::new() });
    }
    let (anywhere, rest) = tail.strip_prefix("**/").map_or((false, tail), |it| (true, it));
    let (is_below, rest) = rest.strip_suffix("/**").map_or((false, rest), |it| (true, it));
    (!rest.contains(WILD)).then(|| {
        let names = rest.split('/').map(str::to_owned).collect();
        Shape::Names { anywhere, is_below, names }
    })
}

fn compile(tail: &str, any_case: bool) -> Result<GlobSet, String> {
    let below = if tail.ends_with("/**") || tail == "**" { "" } else { "{,/**}" };
    let glob = build(&format!("{tail}{below}"), any_case)?;
    // A matcher of a single glob would panic where it is too much for it.
    GlobSet::builder().add(glob).build().map_err(|it| it.kind().to_string())
}

fn build(glob: &str, any_case: bool) -> Result<globset::Glob, String> {
    GlobBuilder::new(glob)
        .literal_separator(true)
        .backslash_escape(true)
        .empty_alternates(true)
        .case_insensitive(any_case)
        .build()
        .map_err(|it| it.kind().to_string())
}

fn below_root(path: &Path) -> &Path {
    let mut parts = path.components();
    if path.has_root() && parts.next() == Some(Component::RootDir) { parts.as_path() } else { path }
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
        self.text == other.text && self.any_case == other.any_case
    }
}

impl Eq for Glob {}

impl Hash for Glob {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
        self.any_case.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ground() -> Ground {
        Ground { roots: vec!["/ws".into(), "/other".into()], home: Some("/home/me".into()) }
    }

    #[test]
    fn globs_mean_what_gitignore_has_taught_people() {
        let table = [
            // glob, what it means, what it does not
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
        ];
        for (text, meant, other) in table {
            let glob = Glob::parse(text, false).unwrap();
            for path in meant.split_whitespace() {
                assert!(glob.matches(Path::new(path), &ground()), "{text}: {path}");
            }
            for path in other.split_whitespace() {
                assert!(!glob.matches(Path::new(path), &ground()), "{text}: {path}");
            }
        }
        assert!(Glob::parse("/Make", true).unwrap().matches(Path::new("/ws/mAKE/a"), &ground()));
        assert!(Glob::everything().matches(Path::new("/any/thing"), &ground()));
    }

    #[test]
    fn what_could_never_match_is_no_glob() {
        for text in
            ["", "../x", "/a/../b", "a/./b", "~", "~you/x", "!x", "/a//b", "///a", "[", "a\nb"]
        {
            assert!(Glob::parse(text, false).is_err(), "{text:?}");
        }
    }

    proptest::proptest! {
        /// Names are compared without a matcher, and it must make no difference.
        #[test]
        fn a_tail_of_names_means_what_its_glob_means(
            tail in r"(\*\*/)?[aAb]{1,2}(/[aAb]{1,2}){0,2}(/\*\*)?|\*\*",
            path in r"([aAb]{1,2}(/[aAb]{1,2}){0,4})?",
            any_case in proptest::bool::ANY,
        ) {
            let quick = Matcher::new(&tail, any_case).unwrap();
            assert!(matches!(quick.shape, Shape::Names { .. }), "{tail}");
            let (path, compiled) = (Path::new(&path), compile(&tail, any_case).unwrap());
            // No real path has these parts.
            if !path.components().any(|it| !matches!(it, Component::Normal(_))) {
                assert_eq!(quick.is_match(path), compiled.is_match(path), "{tail} {path:?}");
            }
        }
    }

    #[test]
    fn a_ban_follows_the_links_in_its_beginning() {
        let real = |path: &Path| match path.to_str() {
            Some("/ws/secrets") => "/data/[1]".into(),
            Some("/var/run") => "/run".into(),
            _ => path.to_path_buf(),
        };
        for (text, meant) in [
            ("/secrets", "/data/[1]/a"),
            ("/secrets/*.pem", "/data/[1]/a.pem"),
            ("secrets", "/data/[1]/a"),
            ("//var/run/**", "/run/x"),
        ] {
            let mut glob = Glob::parse(text, true).unwrap();
            assert!(!glob.matches(Path::new(meant), &ground()), "{text}");
            glob.follow(&ground(), &real);
            assert!(glob.matches(Path::new(meant), &ground()), "{text}");
            assert!(!glob.matches(Path::new("/data/2/a"), &ground()), "{text}");
        }
    }
}
