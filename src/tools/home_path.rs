//! Paths that begin with `~`. Only a shell replaces it by the home folder, so a file tool would create a
//! folder of that name.

use std::path::{Component, Path, PathBuf};

use turnwright_types::effect::escape_hidden_line;
use turnwright_workspace::files::display;

/// Why the first of these paths that begins with `~` is not used, for the model.
pub(super) fn refusal(paths: &[PathBuf], home: Option<&Path>) -> Option<String> {
    let tilde = Component::Normal("~".as_ref());
    let path = paths.iter().find(|path| path.components().next() == Some(tilde))?;
    let rest: PathBuf = path.components().skip(1).collect();
    let absolute = match home {
        Some(home) if rest.as_os_str().is_empty() => shown(home),
        Some(home) => shown(&home.join(rest)),
        None => "the absolute path".to_owned(),
    };
    let name = shown(path);
    Some(format!(
        "{name}: only a shell replaces ~ by the home folder. Nothing was done. Use {absolute}, or \
         ./{name} for what has this name in the project."
    ))
}

fn shown(path: &Path) -> String {
    escape_hidden_line(&display(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tilde_is_refused_only_where_a_shell_would_replace_it() {
        let home = Some(Path::new("/home/me"));
        let refusal = |path: &str| refusal(&["a".into(), path.into()], home);
        for (path, expected) in [("~", "Use /home/me, or ./~ for"), ("~/a/b", "/home/me/a/b, or")] {
            let text = refusal(path).unwrap().replace(std::path::MAIN_SEPARATOR, "/");
            assert!(text.contains(expected), "{path}: {text}");
        }
        for path in ["./~", "a/~/b", "~a", "~$report.docx", "/~", "b~"] {
            assert_eq!(refusal(path), None, "{path}");
        }
    }
}
