//! The folder for what is stored about one project.

use std::path::{Path, PathBuf};

use turnwright_types::hash::fnv1a;

/// The folder for the data of one project. `project` is a path with symlinks resolved. Its name has a hash, of
/// which collisions are possible, so files in the folder name their project.
pub fn project_folder(state: &Path, project: &Path) -> PathBuf {
    let own_name = project.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let plain_name: String = own_name
        .chars()
        .filter(|char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_' | '.'))
        .take(40)
        .collect();
    let hash = fnv1a(project.as_os_str().as_encoded_bytes());
    let name = if plain_name.is_empty() { "project" } else { plain_name.as_str() };
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
