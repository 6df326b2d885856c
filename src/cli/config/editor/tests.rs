//! The guides and their pages; which parts of an entry that is there are replaced, and how a file is written.

use serde_json::json;

use super::*;

/// The manual has a page for each editor and no other, and each page can be used.
#[test]
fn the_pages_and_the_index_name_these_editors() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let pages = std::fs::read_dir(folder.join("editors")).unwrap();
    assert_eq!(pages.count(), GUIDES.len());
    let index = include_str!("../../../../docs/editors.md");
    for guide in GUIDES {
        let name = guide.name;
        assert!(index.contains(&format!("(editors/{name}.md)")), "{name}");
        assert!(index.contains(&format!("| `{name}` |")), "{name}");
        assert!(guide.page.starts_with("# ") && guide.page.contains("\n```"), "{name}");
        let is_file = guide.settings.is_ok();
        let command = format!("`turnwright config editor {name} --write`");
        assert_eq!(guide.page.contains(&command), is_file, "{name}");
        assert_eq!(guide.entry(Path::new("/bin/x")).is_some(), is_file, "{name}");
    }
}

#[test]
fn the_path_of_the_program_is_quoted() {
    let zed = EditorGuide::find("Zed").unwrap();
    let (keys, entry) = zed.entry(Path::new(r#"C:\my "tools"\turnwright.exe"#)).unwrap();
    assert_eq!(keys, ["agent_servers", "turnwright"]);
    assert_eq!(entry["command"], r#"C:\my "tools"\turnwright.exe"#);
    assert!(!zed.text(Path::new("/opt/turnwright")).contains("/home/you"));
}

#[test]
fn a_program_that_was_started_without_installing_it_is_in_a_cache() {
    for (program, expected) in [
        ("/home/a/.npm/_npx/1f/node_modules/turnwright-linux-x64/bin/turnwright", true),
        ("/home/a/.cache/uv/archive-v0/x/bin/turnwright", true),
        ("/data/uv/archive-v0/x/bin/turnwright", true),
        ("/Users/a/Library/Caches/pnpm/dlx/x/turnwright", true),
        ("/home/a/.nvm/versions/node/v22.1.0/lib/node_modules/t/bin/turnwright", false),
        ("/home/a/.local/share/uv/tools/turnwright/bin/turnwright", false),
        ("/home/a/.cargo/bin/turnwright", false),
    ] {
        assert_eq!(is_in_cache(Path::new(program)), expected, "{program}");
    }
}

fn keys(of: &[&str]) -> Vec<String> {
    of.iter().map(|key| (*key).to_owned()).collect()
}

#[test]
fn of_an_entry_only_what_differs_is_replaced() {
    let entry = json!({ "type": "custom", "command": "/new", "args": [], "env": {} });
    let with = |text: &str| with_entry(text, &keys(&["a", "t"]), &entry).unwrap();
    for same in [
        r#"{"a": {"t": {"env": {}, "command": "/new", "type": "custom", "args": []}}}"#,
        // The user's own variables and settings.
        r#"{"a":{"t":{"type":"custom","command":"/new","args":[],"env":{"K":"1"},"default_mode":"ask"}}}"#,
    ] {
        assert_eq!(with(same), same);
    }
    assert_eq!(
        with(
            "{\"a\": { // c\n  \"t\": {\n    \"command\": \"/old\", // mine\n    \"env\": {\"K\": 1}\n  }\n}}"
        ),
        "{\"a\": { // c\n  \"t\": {\n    \"args\": [],\n    \"type\": \"custom\",\n    \"command\": \"/new\", // mine\n    \
         \"env\": {\"K\": 1}\n  }\n}}"
    );
    assert_eq!(
        with(r#"{"a": {"t": "x"}}"#),
        "{\"a\": {\"t\": {\n  \"type\": \"custom\",\n  \"command\": \"/new\",\n  \"args\": [],\n  \"env\": {}\n}}}"
    );
    let acpx = json!({ "argv": ["/new"] });
    let old = r#"{"agents": {"t": {"command": "/old", "args": []}}}"#;
    let new = with_entry(old, &keys(&["agents", "t"]), &acpx).unwrap();
    assert_eq!(jsonc::parse(&new).unwrap(), json!({ "agents": { "t": acpx } }));
}

/// The usual files are those of Linux.
#[cfg(target_os = "linux")]
#[test]
fn where_vs_code_is_used_from_another_machine_the_file_of_its_server_is_changed() {
    use turnwright_config::{EnvironmentVariables, Flags, Paths, UserFile};
    let folder = tempfile::tempdir().unwrap();
    let home = Some(folder.path().to_path_buf());
    let paths = Paths { home, ..Paths::below(folder.path()) };
    let file = UserFile::at_default_path(&paths);
    let config = Config::new(EnvironmentVariables::default(), Flags::default(), file, paths);
    for (made, expected) in [
        (".config", ".config/Code/User/settings.json"),
        (".vscode-remote", ".vscode-remote/data/Machine/settings.json"),
        (".vscode-server", ".vscode-server/data/Machine/settings.json"),
        (".config/Code/User", ".config/Code/User/settings.json"),
    ] {
        std::fs::create_dir_all(folder.path().join(made)).unwrap();
        let vscode = EditorGuide::find("vscode").unwrap();
        assert_eq!(vscode.file(&config), Some(folder.path().join(expected)), "{made}");
        let zed = EditorGuide::find("zed").unwrap().file(&config).unwrap();
        assert!(zed.ends_with(".config/zed/settings.json"), "{}", zed.display());
    }
}

#[cfg(unix)]
#[test]
fn the_folders_of_a_new_file_and_the_file_itself_may_be_behind_links() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let real = real_path(folder.path()).unwrap();
    std::fs::create_dir(real.join("dotfiles")).unwrap();
    symlink("dotfiles", real.join("link")).unwrap();
    let (path, text) = read(&real.join("link/zed/settings.json")).unwrap();
    assert_eq!((path, text), (real.join("dotfiles/zed/settings.json"), None));
    private_file::write(&real.join("dotfiles/s.json"), b"{}").unwrap();
    let (path, text) = read(&real.join("link/s.json")).unwrap();
    assert_eq!((path, text.as_deref()), (real.join("dotfiles/s.json"), Some("{}")));
    symlink("nothing", real.join("dangling")).unwrap();
    assert!(read(&real.join("dangling")).is_err());
}
