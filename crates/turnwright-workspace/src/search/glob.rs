//! Which files are meant: globs as people write them.

use std::path::Path;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// One glob or several with commas between them. One with a slash is about the path, one without
/// about the name, anywhere; one after `!` says what is not meant.
#[derive(Clone, Debug)]
pub struct Glob {
    names: GlobSet,
    paths: GlobSet,
    not_names: GlobSet,
    not_paths: GlobSet,
    /// Whether anything is asked for, and not only left out.
    asks: bool,
    /// The name, if there is nothing in it but a name.
    name: Option<String>,
}

impl Glob {
    /// Understands a glob. An absolute one is taken to start in that folder.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str, base: &Path) -> Result<Glob, String> {
        let mut sets = [(); 4].map(|()| GlobSetBuilder::new());
        let mut asks = false;
        let mut last = String::new();
        let parts = split(text);
        for part in &parts {
            let (is_not, part) = part.strip_prefix('!').map_or((false, *part), |it| (true, it));
            let part = tidy(part, base);
            let is_path = part.contains('/');
            let glob = GlobBuilder::new(&part)
                .literal_separator(true)
                .empty_alternates(true)
                .build()
                .map_err(|it| format!("`{part}` is not a valid glob: {}", it.kind()))?;
            sets[usize::from(is_not) * 2 + usize::from(is_path)].add(glob);
            asks |= !is_not;
            last = part;
        }
        let [names, paths, not_names, not_paths] = sets
            .map(|it| it.build().map_err(|it| format!("`{text}` is too much for a glob: {it}")));
        let is_name = parts.len() == 1 && asks && !last.contains(['*', '?', '[', '{', '\\']);
        let name = last.rsplit('/').next().filter(|_| is_name).map(str::to_owned);
        let (names, paths) = (names?, paths?);
        Ok(Glob { names, paths, not_names: not_names?, not_paths: not_paths?, asks, name })
    }

    /// Whether a path relative to where one looks is meant.
    pub(super) fn fits(&self, path: &Path) -> bool {
        if self.not_paths.is_match(path) {
            return false;
        }
        self.fits_name(path) || self.paths.is_match(path) && !self.is_barred(path)
    }

    /// Whether a file of that name is meant, wherever it lies.
    pub(super) fn fits_name(&self, path: &Path) -> bool {
        let Some(name) = path.file_name() else { return false };
        !self.is_barred(path) && (!self.asks || self.names.is_match(name))
    }

    /// Whether it does not matter where a file lies.
    pub(super) fn is_about_names(&self) -> bool {
        self.paths.is_empty() && self.not_paths.is_empty()
    }

    fn is_barred(&self, path: &Path) -> bool {
        path.file_name().is_some_and(|it| self.not_names.is_match(it))
    }

    /// The name that is asked for, if there are no wildcards.
    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

/// At commas that stand in no braces.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let at_comma = |it: char| {
        match it {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        it == ',' && depth == 0
    };
    text.split(at_comma).map(str::trim).filter(|it| !it.is_empty()).collect()
}

/// Relative, and about files: a folder means all that is in it.
fn tidy(part: &str, base: &Path) -> String {
    let base = base.to_string_lossy();
    let part = part.strip_prefix(&*base).filter(|it| it.starts_with('/')).unwrap_or(part);
    let part = part.trim_start_matches("./").trim_start_matches('/');
    if part.ends_with('/') { format!("{part}**") } else { part.to_owned() }
}
