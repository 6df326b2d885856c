//! Where variables of the environment move what programs keep in the home folder.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// On each line a variable that names a folder or a file, and the place in the home folder that it takes.
const VARIABLES: &str = include_str!("moved_places/variables.txt");

/// Places that hold more than what one variable names, with all folders above them.
const SHARED_PLACES: [&str; 5] = ["/etc/passwd", "/tmp", "/usr/bin", "/usr/local/bin", "/var/tmp"];

/// A part of the home folder that a variable has moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedPlace {
    /// Relative to the home folder.
    usual: &'static str,
    path: PathBuf,
}

/// Returns the places that these variables have moved. Each may name several, as `KUBECONFIG` does.
pub fn moved_places<'a>(variable: impl Fn(&str) -> Option<&'a OsStr>) -> Vec<MovedPlace> {
    let mut moved = Vec::new();
    for (name, usual) in VARIABLES.lines().filter_map(|row| row.split_once(' ')) {
        let value = variable(name).unwrap_or_default();
        let paths = std::env::split_paths(&value).filter(|path| path.is_absolute());
        moved.extend(paths.map(|path| MovedPlace { usual, path }));
    }
    moved
}

impl MovedPlace {
    /// Returns where a place that is relative to the home folder is now, or the part of it that has moved; `None` if
    /// it has not.
    pub fn find(&self, place: &str, home: &Path) -> Option<PathBuf> {
        let moved = match Path::new(place).strip_prefix(self.usual) {
            Ok(below) => self.path.join(below).components().collect(),
            Err(_) if Path::new(self.usual).starts_with(place) => self.path.clone(),
            Err(_) => return None,
        };
        let mut shared = SHARED_PLACES.iter().map(Path::new).chain([home]);
        let is_usual = self.path == home.join(self.usual);
        (!is_usual && !shared.any(|place| place.starts_with(&moved))).then_some(moved)
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_found_where_a_variable_has_moved_it_or_a_part_of_it() {
        assert!(VARIABLES.lines().all(|row| row.split(' ').count() == 2));
        for (name, value, place, expected) in [
            ("CARGO_HOME", "/usr/local/cargo", ".cargo/registry", "/usr/local/cargo/registry"),
            ("CARGO_HOME", "/cargo/", ".cargo/credentials", "/cargo/credentials"),
            ("GOPATH", "/go:/other", "go/pkg/mod", "/go/pkg/mod /other/pkg/mod"),
            ("XDG_CACHE_HOME", "/cache", ".cache", "/cache"),
            ("UV_CACHE_DIR", "/cache/uv", ".cache", "/cache/uv"),
            ("KUBECONFIG", "/a:b:/c", ".kube", "/a /c"),
            ("CARGO_HOME", "/home/me/.cargo", ".cargo/registry", ""),
            ("XDG_CACHE_HOME", "/tmp", ".cache", ""),
            ("XDG_CACHE_HOME", "/home", ".cache", ""),
            ("XDG_CACHE_HOME", "relative", ".cache", ""),
            ("XDG_CACHE_HOME", "/cache", ".cargo", ""),
        ] {
            let moved = moved_places(|known| (known == name).then_some(OsStr::new(value)));
            let found = moved.iter().filter_map(|moved| moved.find(place, Path::new("/home/me")));
            let found: Vec<_> = found.map(|path| path.display().to_string()).collect();
            assert_eq!(found.join(" "), expected, "{name}={value}");
        }
    }
}
