//! The folder for what is stored about one project.

use std::path::{Path, PathBuf};

use turnwright_types::ids::fnv1a;

/// The folder for the data of one project. `project` is a path with symlinks resolved. Its name has a hash, of
/// which collisions are possible, so files in the folder name their project.
pub fn project_folder(state: &Path, project: &Path) -> PathBuf {
    let name = project.file_name().map(|name| name.to_string_lossy().to_lowercase());
    let is_allowed = |char: &char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_' | '.');
    let name: String = name.unwrap_or_default().chars().filter(is_allowed).take(40).collect();
    let hash = fnv1a(project.as_os_str().as_encoded_bytes());
    let name = if name.is_empty() { "project" } else { name.as_str() };
    state.join("projects").join(format!("{name}-{hash:016x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_project_has_a_folder_of_its_own() {
        let folder = |project: &str| {
            let folder = project_folder(Path::new("/state"), Path::new(project));
            folder.to_string_lossy().replace(std::path::MAIN_SEPARATOR, "/")
        };
        assert!(folder("/home/me/App").starts_with("/state/projects/app-"));
        assert!(folder("/").starts_with("/state/projects/project-"));
        assert!(folder("/a/../b").starts_with("/state/projects/b-"));
        assert_ne!(folder("/a/app"), folder("/b/app"));
        assert_eq!(folder("/a/app"), folder("/a/app"));
    }
}
