//! File globs as people and models write them.

use std::borrow::Cow;
use std::path::{MAIN_SEPARATOR, Path};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use turnwright_types::effect::unescape_hidden_line;
use turnwright_types::look_alike::plain_blanks;

/// One glob or several separated by commas. A glob with a slash matches the path, one without
/// matches the name at any depth; a glob after `!` excludes.
/// Names match whatever Unicode form and kinds of blanks they have.
#[derive(Clone, Debug)]
pub struct Glob {
    names: GlobSet,
    paths: GlobSet,
    not_names: GlobSet,
    not_paths: GlobSet,
    /// True if there is a glob that includes, and not only ones that exclude.
    has_includes: bool,
    /// The file name, if the glob is a single one without wildcards.
    name: Option<String>,
}

impl Glob {
    /// Parses a glob. An absolute one must be below `base` and is made relative to it.
    pub fn parse(text: &str, base: &Path) -> Result<Glob, String> {
        let mut sets = [(); 4].map(|()| GlobSetBuilder::new());
        let mut has_includes = false;
        let mut last = String::new();
        // A name that was shown with escapes for its hidden characters.
        let unescaped = unescape_hidden_line(text).filter(|_| text.contains("\\u{"));
        let text = unescaped.as_deref().unwrap_or(text);
        let plain = plain_blanks(text);
        let parts = split_at_commas(&plain);
        // A name may have a comma, too.
        let whole = (parts.len() > 1).then(|| plain.trim());
        for part in parts.iter().copied().chain(whole) {
            let (is_not, part) = part.strip_prefix('!').map_or((false, part), |rest| (true, rest));
            let part = normalize(part, base);
            let is_path = part.contains('/');
            let set = &mut sets[usize::from(is_not) * 2 + usize::from(is_path)];
            // Names such as `[id].tsx` and `{{cookiecutter.slug}}` are meant as they are.
            let with_brackets = part.replace('[', "[[]");
            let with_braces = with_brackets.replace('{', "[{]").replace('}', "[}]");
            for glob in [&part, &with_brackets, &with_braces] {
                let glob = GlobBuilder::new(glob)
                    .literal_separator(true)
                    .empty_alternates(true)
                    .build()
                    .map_err(|error| format!("`{part}` is not a valid glob: {}", error.kind()))?;
                set.add(glob);
            }
            has_includes |= !is_not;
            last = part;
        }
        let [names, paths, not_names, not_paths] = sets.map(|builder| {
            builder.build().map_err(|error| format!("`{text}` is too large for a glob: {error}"))
        });
        let is_name =
            parts.len() == 1 && has_includes && !last.contains(['*', '?', '[', '{', '\\']);
        let name = last.rsplit('/').next().filter(|_| is_name).map(str::to_owned);
        let names = names?;
        let paths = paths?;
        Ok(Glob { names, paths, not_names: not_names?, not_paths: not_paths?, has_includes, name })
    }

    /// Returns true if the glob matches a path relative to the searched folder.
    pub(super) fn matches(&self, path: &Path) -> bool {
        let path = &*plain_path(path);
        !self.not_paths.is_match(path)
            && (self.matches_name(path) || self.paths.is_match(path) && !self.excludes_name(path))
    }

    /// Returns true if the glob matches the name of a file, at any depth.
    pub(super) fn matches_name(&self, path: &Path) -> bool {
        let path = &*plain_path(path);
        let Some(name) = path.file_name() else { return false };
        !self.excludes_name(path) && (!self.has_includes || self.names.is_match(name))
    }

    /// Returns true if all globs match only names, so the location of a file does not matter.
    pub(super) fn matches_only_names(&self) -> bool {
        self.paths.is_empty() && self.not_paths.is_empty()
    }

    fn excludes_name(&self, path: &Path) -> bool {
        path.file_name().is_some_and(|name| self.not_names.is_match(name))
    }

    /// The requested name, if there are no wildcards.
    pub(super) fn literal_name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

/// The path in the form in which globs are compared.
fn plain_path(path: &Path) -> Cow<'_, Path> {
    match path.to_str().map(plain_blanks) {
        Some(Cow::Owned(plain)) => Cow::Owned(plain.into()),
        _ => Cow::Borrowed(path),
    }
}

/// Splits at commas outside of braces.
fn split_at_commas(text: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let parts = text.split(|c: char| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    parts.map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// Makes a glob relative to `base`, and a glob for a folder match all files in it. Blanks behind the commas of
/// alternatives go, and backslashes that separate folders as on Windows become slashes.
fn normalize(part: &str, base: &Path) -> String {
    let part = if part.contains('{') { part.replace(", ", ",") } else { part.to_owned() };
    let mut behind = part.split('\\').skip(1);
    let is_foreign = MAIN_SEPARATOR == '/'
        && behind.any(|rest| rest.starts_with("**") || rest.starts_with(char::is_alphanumeric));
    let part = if is_foreign { part.replace('\\', "/") } else { part };
    let folder = base.to_string_lossy();
    let base = plain_blanks(&folder);
    let below = part.strip_prefix(&*base).filter(|rest| rest.starts_with('/')).unwrap_or(&part);
    let relative = below.trim_start_matches("./").trim_start_matches('/');
    if relative.ends_with('/') { format!("{relative}**") } else { relative.to_owned() }
}
