//! Compares `shell::parse` with real shells. Lines of random tokens that the parser finds unambiguous
//! are run by bash and dash, and the programs that have run must be those that the parser has found.
//! `PATH` holds two stubs, `a` and `b`. No accepted line runs `b`.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use turnwright_policy::shell::{Redirect, Script, parse};
use turnwright_testing::process_waits;
use turnwright_types::shell_script::ShellDialect;

use crate::agent::eventually;

/// The number of lines that each shell runs, unless `TURNWRIGHT_SHELL_LINES` sets another.
const LINES: usize = 900;
const SEEDS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03];

/// The stub logs its words and its folder with a single write, so that the entries of a pipeline do not
/// mix.
const STUB: &str = "#!/bin/sh
text=\"${0##*/}\"
for word; do text=\"$text\u{1f}$word\"; done
cd -P .
printf '%s\u{1e}%s\u{1d}' \"$text\" \"$PWD\" >&9
exit \"$STATUS\"
";

/// Connects the log of the stubs to a pipe, which is closed when the last process has ended, and
/// discards all other output.
const RUNNER: &str = r#"exec 9>&1 >/dev/null 2>&1 </dev/null; exec "$@""#;

#[test]
fn real_shells_run_only_the_commands_that_the_parser_finds() {
    let lines = std::env::var("TURNWRIGHT_SHELL_LINES").ok().and_then(|it| it.parse().ok());
    let lines: usize = lines.unwrap_or(LINES);
    let shells = [
        ("bash", ShellDialect::Bash, &["/bin/bash", "--noprofile", "--norc", "-c"] as &[&str]),
        ("bash as sh", ShellDialect::Posix, &["/bin/bash", "--posix", "-c"]),
        ("dash", ShellDialect::Posix, &["/bin/dash", "-c"]),
    ];
    let threads: Vec<_> = shells
        .into_iter()
        .zip([0, 1, 2])
        .filter(|((name, _, argv), _)| {
            let is_there = Path::new(argv[0]).exists();
            if !is_there {
                eprintln!("SKIPPED: {name} is not installed, so it was not compared");
            }
            is_there
        })
        .flat_map(|(shell, rotation)| SEEDS.map(|seed| (seed.rotate_left(rotation), shell)))
        .map(|(seed, (name, dialect, argv))| {
            let count = lines / SEEDS.len();
            std::thread::spawn(move || (name, count, compare(seed, dialect, argv, count)))
        })
        .collect();
    for thread in threads {
        let (name, run, (unmoved, exact)) = thread.join().unwrap();
        eprintln!(
            "{name}: {run} lines were run, {unmoved} of them without `cd`, and {exact} compared word by word"
        );
        assert!(exact > unmoved / 3, "{name}: too few lines could be compared word by word");
        assert!(run - unmoved > run / 20, "{name}: too few lines change the folder");
    }
}

/// Runs random lines. Returns the number of lines that stay in their folder, and the number of those whose
/// words could all be compared.
fn compare(seed: u64, dialect: ShellDialect, shell: &[&str], wanted: usize) -> (usize, usize) {
    let scratch = Scratch::new();
    let mut noise = Noise(seed);
    let (mut run, mut unmoved, mut exact) = (0, 0, 0);
    let mut known = BTreeSet::new();
    while run < wanted {
        let line = random_line(&mut noise);
        let script = parse(&line, dialect);
        // The stubs log to file descriptor 9.
        let uses_log = line.contains("9<") || line.contains("9>");
        let is_wanted = script.ambiguity.is_none() && !uses_log && runs_only_stub(&script);
        if !is_wanted || !known.insert(line.clone()) {
            continue;
        }
        run += 1;
        unmoved += usize::from(script.commands.iter().all(|command| command.program() == "a"));
        exact += usize::from(scratch.check(&line, &script, shell));
    }
    (unmoved, exact)
}

/// Whether the script runs the stub `a` and, apart from `cd`, nothing else.
fn runs_only_stub(script: &Script) -> bool {
    !script.commands.is_empty()
        && script.commands.iter().all(|it| matches!(it.program(), "a" | "cd"))
        && script.commands.iter().any(|it| it.program() == "a")
}

/// Whether the path is outside of the folder whose files are compared.
fn leaves_scratch(path: &Path) -> bool {
    path.is_absolute() || path.starts_with("..")
}

/// Whether the line copies a file descriptor that may be closed.
fn copies_unknown(line: &str) -> bool {
    let line = line.replace("2>&1", "").replace(">&2", "");
    line.contains(">&") || line.contains("<&")
}

struct Scratch {
    /// Holds `bin` with the programs, and `work`, in which the lines run.
    folder: tempfile::TempDir,
}

impl Scratch {
    fn new() -> Scratch {
        let folder = turnwright_testing::temporary_folder();
        let programs = folder.path().join("bin");
        fs::create_dir(&programs).unwrap();
        for name in ["a", "b"] {
            let stub = programs.join(name);
            fs::write(&stub, STUB).unwrap();
            fs::set_permissions(&stub, fs::Permissions::from_mode(0o755)).unwrap();
            // A process that another test has just forked may still hold the file open for writing.
            let mut command = Command::new(&stub);
            eventually("the stub can be run", || {
                let ran = process_waits::output(&mut command);
                !ran.is_err_and(|it| it.kind() == ErrorKind::ExecutableFileBusy)
            });
        }
        for name in ["env", "nice", "nohup", "timeout", "stdbuf", "time", "sh", "bash", "dash"] {
            let found = ["/bin", "/usr/bin"].map(|it| Path::new(it).join(name));
            if let Some(real) = found.iter().find(|it| it.exists()) {
                symlink(real, programs.join(name)).unwrap();
            }
        }
        Scratch { folder }
    }

    /// Runs a line and compares the commands that ran with the script. Returns whether all words could
    /// be compared.
    fn check(&self, line: &str, script: &Script, shell: &[&str]) -> bool {
        let declared: Vec<Vec<&str>> = script
            .commands
            .iter()
            .filter(|it| it.program() == "a")
            .map(|it| it.argv().collect())
            .collect();
        let writes: BTreeSet<PathBuf> = script
            .commands
            .iter()
            .flat_map(|it| it.redirects.iter().map(|to| (it.folder.clone(), to)))
            .filter(|(_, to)| to.is_write)
            .map(|(folder, to)| folder.unwrap().join(&to.path))
            .collect();
        if writes.iter().any(|it| leaves_scratch(it)) {
            return false;
        }
        let is_glob = script.commands.iter().any(|it| it.words.iter().any(|it| it.is_glob));
        // Whether commands with these parts run depends on files and file descriptors.
        let is_new = |it: &Redirect| ["f", "g"].iter().any(|name| it.path.as_os_str() == *name);
        let may_fail = |it: &Redirect| !it.is_write || !is_new(it);
        let depends = script.commands.iter().any(|command| {
            command.program() == "cd"
                || command.redirects.iter().any(may_fail)
                || command.wrappers.iter().any(|it| it == "time")
        }) || copies_unknown(line);
        let mut all_words = BTreeSet::new();
        // Commands after `||` run only if the stub fails.
        let statuses: &[&str] = if line.contains("||") { &["0", "1"] } else { &["0"] };
        for status in statuses {
            let ran = self.run(line, shell, status);
            let report = || format!("{} says of {line:?}: {script:?}\nbut ran {ran:?}", shell[0]);
            self.compare_files(&writes, &report);
            for (words, folder) in &ran {
                let found = script.commands.iter().filter(|command| {
                    let same = command.argv().eq(words.iter().map(String::as_str))
                        || is_glob && command.program() == words[0];
                    // Where a `cd` fails, the folder that it would lead to need not exist.
                    let place = self.work().join(command.folder.as_ref().unwrap()).canonicalize();
                    same && place.is_ok_and(|place| place == Path::new(folder))
                });
                let most = found.count();
                let times = ran.iter().filter(|other| other.0 == *words && other.1 == *folder);
                assert!(most > 0 && (is_glob || times.count() <= most), "{}", report());
            }
            all_words.extend(ran.into_iter().map(|it| it.0));
        }
        if depends || is_glob {
            return false;
        }
        for words in &declared {
            let is_there = all_words.iter().any(|it| it.iter().eq(words.iter()));
            assert!(is_there, "{} did not run {words:?} of {line:?}: {all_words:?}", shell[0]);
        }
        true
    }

    fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    fn run(&self, line: &str, shell: &[&str], status: &str) -> Vec<(Vec<String>, String)> {
        let work = self.work();
        drop(fs::remove_dir_all(&work));
        fs::create_dir_all(work.join("d")).unwrap();
        fs::write(work.join("in"), "").unwrap();
        let mut child = Command::new("/bin/sh")
            .args(["-c", RUNNER, "sh"])
            .args(shell)
            .arg(line)
            .current_dir(&work)
            .env_clear()
            .env("PATH", self.folder.path().join("bin"))
            .env("STATUS", status)
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let log = process_waits::all_of(child.stdout.take().unwrap(), &child);
        process_waits::wait(&mut child);
        let log = String::from_utf8(log).unwrap();
        let runs = log.split_terminator('\u{1d}').map(|it| it.split_once('\u{1e}').unwrap());
        let words = |it: &str| it.split('\u{1f}').map(str::to_owned).collect();
        runs.map(|(text, folder)| (words(text), folder.to_owned())).collect()
    }

    fn compare_files(&self, writes: &BTreeSet<PathBuf>, report: &dyn Fn() -> String) {
        let work = self.work();
        for folder in [work.clone(), work.join("d")] {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let path = path.strip_prefix(&work).unwrap();
                let is_known = path == Path::new("d") || path == Path::new("in");
                let is_declared = |declared: &PathBuf| {
                    work.join(declared) == work.join(path) || {
                        let real = work.join(declared).canonicalize();
                        real.is_ok_and(|it| it == work.join(path).canonicalize().unwrap())
                    }
                };
                assert!(
                    is_known || writes.iter().any(is_declared),
                    "{}: {}",
                    path.display(),
                    report()
                );
            }
        }
    }
}

/// A generator of pseudo-random numbers, the same in each run.
struct Noise(u64);

impl Noise {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % end
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

const PLAIN: &[&str] = &["a", "a", "a", "x", "-v", "b", "1", "2", "d", "in", "f", "CI=1", "x=y"];
const GLUE: &[&str] = &[
    "\\", "'", "\"", "#", "~", "=", ":", "{", "}", "[", "]", "*", "?", "!", "%", "^", "@", ",",
    ".", "..", "/", "-", "+", "$", "`", "(", ")", "é", "ß", "\\\\", "''", "\"\"", "\\ ", "\\;",
    "'b'", "\\b", "{}", "{a,b}", "~b", "$b", "$(b)", "`b`", "';b'", "\"&b\"", "\"\\$b\"", "\\$",
    "\\#", "\\\n", "\\'", "1", "2", "'\n'", "\t", "\r", "\u{a0}",
];
const BETWEEN: &[&str] = &[
    ";",
    "&&",
    "||",
    "|",
    "&",
    "\n",
    "|&",
    ";;",
    "&&\n",
    "|\n",
    " ; ",
    "\n\n",
    "; b",
    "| b",
    "!",
    "{",
    "}",
    "(",
    ")",
    "then",
    "if",
    "do",
    "time",
    "cd d",
    "cd d &&",
    "cd .. &&",
    "cd in &&",
    "; cd d;",
    "; cd ./d\n",
    "\ncd in;",
    "; cd in &&",
    "; cd d ||",
    "; cd .. ;",
    "cd - &&",
    " # b\n",
    " #'\n",
    "# b \\\n",
    " \\\n",
    " \\\n#",
    "\\\n",
];
const FILES: &[&str] = &[
    ">",
    ">>",
    "<",
    "2>",
    "2>&1",
    ">&2",
    ">&",
    "&>",
    "&>>",
    "<>",
    ">|",
    "<<",
    "<<<",
    "1>",
    "0<",
    "3>",
    "22>",
    "<&",
    ">&-",
    "2>&-",
    "<&0",
    "{x}>",
    "> f",
    ">g",
    "<in",
    "2>f",
    "&>f",
    "&>>g",
    ">/dev/null",
    "</dev/null",
    "2>/dev/null",
    ">'b'",
    ">\"h i\"",
    ">d/k",
    ">>f",
    ">f2>g",
    "2>&1>f",
    ">2",
];
const FRONT: &[&str] = &[
    "CI=1",
    "NO_COLOR=",
    "X=1",
    "CI='b'",
    "LC_ALL=C",
    "env",
    "env CI=1",
    "nice",
    "nice -n 1",
    "timeout 9",
    "nohup",
    "stdbuf -oL",
    "time",
    "time -p",
    "command",
    "exec",
    "eval",
    "sh -c 'a b'",
    "bash -c \"a 'b c'\"",
    "dash -c 'a 1; a 2'",
    "sh -c 'a && a x > f'",
    "\\a",
    "'a'",
    "a\"\"",
    "''a",
];

/// A line of random tokens that begins with a command.
fn random_line(noise: &mut Noise) -> String {
    let mut line = String::new();
    if noise.below(3) == 0 {
        line.push_str(noise.pick(FRONT));
        line.push(' ');
    }
    line.push_str(noise.pick(&["a", "a", "a ", "cd d", "cd d; a"]));
    for _ in 0..=noise.below(7) {
        let token = match noise.below(16) {
            0..=6 => noise.pick(PLAIN),
            7..=9 => noise.pick(GLUE),
            10..=12 => noise.pick(BETWEEN),
            13..=14 => noise.pick(FILES),
            _ => noise.pick(FRONT),
        };
        let is_between = BETWEEN.contains(&token);
        line.push_str(noise.pick(&["", " ", " ", " "]));
        line.push_str(token);
        // Random tokens seldom name the stub where a command begins.
        if is_between && noise.below(4) > 0 {
            line.push_str(" a");
        }
    }
    line
}
