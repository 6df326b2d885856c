//! `turnwright config editor`: what it prints, what it writes, and what it leaves alone.

use std::fs;
use std::path::Path;
#[cfg(unix)]
use std::process::Command;
use std::process::Stdio;

use turnwright_testing::process_waits;

use crate::agent::subcommand;

/// The exit status, stdout and stderr of `turnwright config editor`.
fn editor(home: &Path, arguments: &[&str]) -> (i32, String, String) {
    let mut command = subcommand(&home.join("own"), &["config", "editor"]);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .env(if cfg!(windows) { "USERPROFILE" } else { "HOME" }, home)
        .env(if cfg!(windows) { "APPDATA" } else { "XDG_CONFIG_HOME" }, home.join("settings"));
    let output = process_waits::output(&mut command).unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// The path of the program as it stands in JSON.
fn program() -> String {
    let path = std::path::absolute(env!("CARGO_BIN_EXE_turnwright")).unwrap();
    let path = serde_json::Value::from(path.to_str().unwrap()).to_string();
    path.trim_matches('"').to_owned()
}

#[test]
fn the_printed_set_up_has_the_full_path() {
    let home = turnwright_testing::temporary_folder();
    for name in ["zed", "neovim", "emacs", "jetbrains", "vscode", "acpx"] {
        let (status, text, errors) = editor(home.path(), &[name]);
        assert_eq!((status, errors.as_str()), (0, ""), "{text}");
        assert!(text.contains(&program()) && text.starts_with("# "), "{text}");
    }
    let (_, text, _) = editor(home.path(), &["jetbrains"]);
    let file = home.path().join(".jetbrains/acp.json");
    let slashes = |it: &str| if cfg!(windows) { it.replace('\\', "/") } else { it.to_owned() };
    let expected = format!("On this machine the file is {}\n", file.display());
    assert!(slashes(&text).ends_with(&slashes(&expected)), "{text}");
    assert_eq!(editor(home.path(), &["toad"]).0, 0);
    let (status, _, errors) = editor(home.path(), &["ed"]);
    assert!(status == 2 && errors.contains("zed, neovim, emacs"), "{errors}");
}

/// Package managers put each version into a folder of its own, and a link into `PATH`.
#[cfg(unix)]
#[test]
fn a_link_in_the_path_is_the_program() {
    let home = turnwright_testing::temporary_folder();
    let bin = home.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let link = bin.join("turnwright");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_turnwright"), &link).unwrap();
    let shown = |path: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_turnwright"));
        command.args(["config", "editor", "zed"]).env_clear().env("PATH", path);
        command.env("TURNWRIGHT_HOME", home.path().join("own"));
        let output = process_waits::output(&mut command).unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let link = link.to_str().unwrap();
    assert!(shown(bin.to_str().unwrap()).contains(&format!("\"command\": \"{link}\"")));
    fs::remove_file(link).unwrap();
    // Another program of this name.
    fs::write(link, "#!/bin/sh\n").unwrap();
    assert!(shown(bin.to_str().unwrap()).contains(&program()));
}

#[cfg(not(target_os = "macos"))]
#[test]
fn the_entry_is_written_into_the_usual_file_and_nothing_else_changes() {
    let home = turnwright_testing::temporary_folder();
    let folder = home.path().join(if cfg!(windows) { "settings/Zed" } else { "settings/zed" });
    let file = folder.join("settings.json");
    fs::create_dir_all(&folder).unwrap();
    let old = "// mine\n{\n\t\"theme\": \"x\", // dark, \"env\"\n\t\"env\": { \"KEY\": \"canary\" },\n}\n";
    fs::write(&file, old).unwrap();
    #[cfg(unix)]
    let dotfile = {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let dotfile = home.path().join("zed.json");
        fs::rename(&file, &dotfile).unwrap();
        fs::set_permissions(&dotfile, fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&dotfile, &file).unwrap();
        dotfile
    };

    // Nobody can answer the question.
    let (status, text, errors) = editor(home.path(), &["zed", "--write"]);
    assert!(status == 1 && errors.contains("add --yes"), "{errors}");
    assert!(text.contains("+\t\"agent_servers\": {") && !text.contains("canary"), "{text}");
    assert_eq!(fs::read_to_string(&file).unwrap(), old);

    let (status, text, _) = editor(home.path(), &["zed", "--write", "--yes"]);
    assert!(status == 0 && text.ends_with("Written.\n"), "{text}");
    let entry = format!(
        "\n\t\"agent_servers\": {{\n\t\t\"turnwright\": {{\n\t\t\t\"type\": \"custom\",\n\t\t\t\"command\": \
         \"{}\",\n\t\t\t\"args\": [],\n\t\t\t\"env\": {{}}\n\t\t}}\n\t}},",
        program()
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), old.replacen('{', &format!("{{{entry}"), 1));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert!(file.is_symlink());
        assert_eq!(dotfile.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    }
    let (status, text, _) = editor(home.path(), &["zed", "--write"]);
    assert!(status == 0 && text.starts_with("Already set up in "), "{text}");
}

#[test]
fn a_file_with_the_line_ends_of_windows_keeps_them() {
    let home = turnwright_testing::temporary_folder();
    let file = home.path().join("acp.json");
    fs::write(&file, "{\r\n  \"agent_servers\": {} // mine\r\n}\r\n").unwrap();
    let arguments = ["jetbrains", "--write", "--yes", "--file", file.to_str().unwrap()];
    let (status, text, errors) = editor(home.path(), &arguments);
    assert_eq!((status, errors.as_str()), (0, ""));
    assert!(!text.contains("\\u{d}"), "{text}");
    let new = fs::read_to_string(&file).unwrap();
    assert!(new.ends_with("} // mine\r\n}\r\n"), "{new:?}");
    assert_eq!(new.matches('\n').count(), new.matches("\r\n").count(), "{new:?}");
}

#[test]
fn what_cannot_be_parsed_or_is_code_is_printed_and_not_written() {
    let home = turnwright_testing::temporary_folder();
    let file = home.path().join("acp.json");
    for wrong in ["{ 'agent_servers': {} }", "[]", "{ \"agent_servers\": 1 }", "\u{0}"] {
        fs::write(&file, wrong).unwrap();
        let arguments = ["jetbrains", "--write", "--yes", "--file", file.to_str().unwrap()];
        let (status, text, errors) = editor(home.path(), &arguments);
        assert!(status == 1 && text.contains(&program()), "{text}");
        assert!(errors.contains("acp.json cannot be changed: "), "{errors}");
        assert_eq!(fs::read_to_string(&file).unwrap(), wrong);
    }
    for (name, why) in
        [("neovim", "is Lua code"), ("emacs", "is Lisp code"), ("toad", "command line")]
    {
        let (status, text, errors) = editor(home.path(), &[name, "--write", "--yes"]);
        assert!(status == 1 && errors.contains(why) && text.starts_with("# "), "{errors}");
    }
    // A file that is not there is made, with its folders.
    let (status, _, errors) = editor(home.path(), &["acpx", "--write", "--yes"]);
    assert_eq!((status, errors.as_str()), (0, ""));
    let made = fs::read_to_string(home.path().join(".acpx/config.json")).unwrap();
    let made: serde_json::Value = serde_json::from_str(&made).unwrap();
    let path = std::path::absolute(env!("CARGO_BIN_EXE_turnwright")).unwrap();
    assert_eq!(made["agents"]["turnwright"]["argv"][0], path.to_str().unwrap());
}

#[cfg(unix)]
#[test]
fn on_a_terminal_it_is_asked_and_only_a_yes_writes() {
    use turnwright_testing::pseudo_terminal::PseudoTerminal;
    let home = turnwright_testing::temporary_folder();
    let file = home.path().join("acp.json");
    for (answer, is_written) in [("", false), ("n", false), ("perhaps", false), ("y", true)] {
        let words = ["config", "editor", "jetbrains", "--write", "--file"];
        let mut command = subcommand(&home.path().join("own"), &words);
        command.arg(&file).stdout(Stdio::null());
        let mut terminal = PseudoTerminal::start(command);
        terminal.wait_for("Write this? [y/N] ");
        assert!(!file.exists());
        terminal.type_in(&format!("{answer}\n"));
        assert_eq!(terminal.wait_for_end("").0.success(), is_written, "{answer}");
        assert_eq!(file.exists(), is_written, "{answer}");
    }
}
