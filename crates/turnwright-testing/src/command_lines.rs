//! Command lines that do the same in `sh` and in `cmd`, which runs the commands on Windows.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::programs::example_program;

/// The line for the shell that runs commands here.
pub fn line_for<'a>(sh: &'a str, cmd: &'a str) -> &'a str {
    if cfg!(windows) { cmd } else { sh }
}

/// Creates an empty file. The path has no blanks and is in the working folder.
pub fn touch(path: &str) -> String {
    if cfg!(windows) { format!("type nul > {path}") } else { format!("touch {path}") }
}

/// Prints a file in the working folder.
pub fn cat(path: &str) -> String {
    format!("{} {path}", line_for("cat", "type"))
}

/// Runs the first line, then the second one, whether or not the first one succeeds.
pub fn then(first: &str, second: &str) -> String {
    if cfg!(windows) { format!("{first}& {second}") } else { format!("{first}; {second}") }
}

/// Runs until it is ended. `word` is a number, which tells [`is_alive`](crate::is_alive) the process from
/// others.
pub fn run_on(word: &str) -> String {
    if cfg!(windows) {
        return with_scenario(&server_with(word), &json!({ "stays": true }));
    }
    format!("sleep {word}")
}

/// The program of a scripted server that [`is_alive`](crate::is_alive) finds by this word, which is in its
/// scenario. Windows tells nobody the command line of another process, but the file of a running program is
/// open, so there the server has a program of its own.
pub fn server_with(word: &str) -> PathBuf {
    let server = example_program("scripted_server");
    if cfg!(not(windows)) {
        return server;
    }
    let program = word_program(word);
    if !program.exists() {
        std::fs::copy(server, &program).unwrap();
    }
    program
}

/// Starts [`run_on`] in the background, then runs the second line.
pub fn in_background(word: &str, second: &str) -> String {
    let line = run_on(word);
    if cfg!(windows) {
        format!("start /b \"\" {line} & {second}")
    } else {
        format!("{line} & {second}")
    }
}

/// Waits until there is this file in the working folder.
pub fn wait_for_file(path: &str) -> String {
    if cfg!(windows) {
        let program = example_program("scripted_server");
        return with_scenario(&program, &json!({ "start_file": path }));
    }
    format!("until [ -e {path} ]; do sleep 0.02; done")
}

fn with_scenario(program: &Path, scenario: &Value) -> String {
    let scenario = scenario.to_string().replace('"', "\\\"");
    format!("\"{}\" \"{scenario}\"", program.display())
}

/// The file of the program that [`server_with`] makes on Windows. A name of a program before the word, with a
/// zero between, is left out.
pub(crate) fn word_program(word: &str) -> PathBuf {
    let word = word.rsplit('\0').next().unwrap_or_default();
    example_program("scripted_server").with_file_name(format!("runs-on-{word}.exe"))
}
