//! Judges the commands of `tests/data/shell/everyday.txt` as a session does, in a project that has some
//! of the files that they name.

use std::fs;
use std::path::Path;

use turnwright_types::effect::{Effect, PathScope, ResolvedPath};
use turnwright_types::shell_script::ShellDialect;

use super::{
    Confinement, Grants, Judgement, Mode, PathBases, PolicyRules, ProtectedPaths, Rule, RuleAction,
    Scope, Verdict, decide, judge,
};
use crate::shell::{self, LookUp, NamedPlace};

const EVERYDAY: &str = include_str!("../../tests/data/shell/everyday.txt");
const EVERYDAY_MODES: &str = include_str!("../../tests/data/shell/everyday_modes.txt");
const ASKED_HEADING: &str = "# asked about, and why";

/// The width of the columns before a command in the table of modes.
const COLUMNS_WIDTH: usize = 20;

/// A project whose files the commands name.
#[expect(clippy::disallowed_methods, reason = "the test makes files")]
fn project() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["src/main.rs", "src/lib.rs", "tests/all.rs", "data/users.csv", "Cargo.toml"] {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x\n").unwrap();
    }
    folder
}

/// A path of the project at `root`, without links.
fn resolved(path: &Path, root: &Path) -> ResolvedPath {
    let real = fs::canonicalize(path).ok().or_else(|| {
        let folder = fs::canonicalize(path.parent()?).ok()?;
        Some(folder.join(path.file_name()?))
    });
    let real = real.unwrap_or_else(|| path.to_path_buf());
    let is_inside = real.starts_with(root) && !path.ends_with("..");
    let scope = if is_inside { PathScope::Workspace } else { PathScope::Outside };
    ResolvedPath { path: real, scope }
}

struct Project<'a>(&'a Path);

impl LookUp for Project<'_> {
    fn place(&self, path: &Path) -> Option<NamedPlace> {
        Some(NamedPlace { target: resolved(path, self.0), is_folder: path.is_dir() })
    }

    fn names_in(&self, folder: &Path) -> Option<Vec<String>> {
        let entries = fs::read_dir(folder).ok()?;
        entries.map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
    }
}

fn effects(line: &str, root: &Path) -> Vec<Effect> {
    let mut command = shell::command(line, root, ShellDialect::Bash);
    command.edits = shell::edited_files(&command.script, root, &Project(root));
    shell::effects_of(command, |path| resolved(path, root))
}

fn verdict(line: &str, root: &Path, can_confine: bool) -> Verdict {
    let policy = PolicyRules { can_confine, ..PolicyRules::default() };
    decide(&policy, Mode::Ask, &Grants::default(), &effects(line, root)).verdict()
}

/// The table says for each command what it does in the modes, in the words of `docs/permissions.md`.
#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "only GNU's `sed -i` takes no word after it")]
fn everyday_commands_are_asked_about_only_where_they_have_to_be() {
    const MODES: [Mode; 4] = [Mode::Plan, Mode::Ask, Mode::AutoEdit, Mode::Auto];
    let project = project();
    let root = fs::canonicalize(project.path()).unwrap();
    let policy = PolicyRules {
        can_confine: true,
        bases: PathBases { roots: vec![root.clone()], home: None },
        protected: ProtectedPaths::new(vec![root.clone()], Vec::new()),
        ..PolicyRules::default()
    };
    let mut wrong = String::new();
    let mut questions = [0; 4];
    let mut count = 0;
    for row in EVERYDAY_MODES.lines().filter(|row| !row.is_empty() && !row.starts_with('#')) {
        let (expected, line) = row.split_at_checked(COLUMNS_WIDTH).unwrap();
        let effects = effects(&line.replace("⟨a⟩", "\n"), &root);
        let mut found = Vec::new();
        for (mode, asked) in MODES.into_iter().zip(&mut questions) {
            let verdict = decide(&policy, mode, &Grants::default(), &effects).verdict();
            *asked += usize::from(verdict == Verdict::Ask);
            found.push(match verdict {
                Verdict::Allow => "yes",
                Verdict::Ask => "asks",
                Verdict::Deny => "no",
            });
        }
        count += 1;
        if expected.split_whitespace().ne(found.iter().copied()) {
            wrong.push_str(&format!("{} {line}\n", found.join(" ")));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert_eq!((count, questions), (188, [0, 122, 88, 28]));
}

/// The mode `auto-edit` with a rule that asks, in a project with these files.
#[expect(clippy::disallowed_methods, reason = "the test makes files")]
fn verdicts_in_auto_edit<'a>(files: &[&str], lines: &[&'a str]) -> Vec<(&'a str, Verdict)> {
    let project = project();
    let root = fs::canonicalize(project.path()).unwrap();
    for name in files {
        fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
        fs::write(root.join(name), "x").unwrap();
    }
    let policy = PolicyRules {
        rules: vec![Rule::parse("edit(/asked/**)", RuleAction::Ask, Scope::User).unwrap()],
        can_confine: true,
        bases: PathBases { roots: vec![root.clone()], home: None },
        protected: ProtectedPaths::new(vec![root.clone()], Vec::new()),
        ..PolicyRules::default()
    };
    let judge = |line: &str| {
        let effects = effects(line, &root);
        decide(&policy, Mode::AutoEdit, &Grants::default(), &effects).verdict()
    };
    lines.iter().map(|line| (*line, judge(line))).collect()
}

/// The files of the project in which folders are copied.
const COPIED_FILES: &[&str] = &[
    ".docker/config.json",
    ".supabase/access-token",
    "sec/deep/.env",
    "sec/.gemini/oauth_creds.json",
    "evil/copilot-instructions.md",
    "evil/sub/a.md",
    "plain/config.json",
    "plain/asked/a.md",
    "docs/a.md",
    "docs/more/b.md",
    ".github/workflows/a.yml",
    "asked/old.md",
];

#[test]
fn a_folder_is_copied_and_moved_with_a_question_if_anything_in_it_is_secret_or_becomes_protected() {
    let asked = [
        "cp -r .docker/. out1",
        "cp -r .docker dkr",
        "cp -rT .docker out3",
        "mv .docker dkr",
        "mv .docker docs",
        "git mv .docker d2",
        "cp -r . out",
        "cp -r docs/.. out",
        "cp -r sec out",
        "cp -r sec/* out",
        "mv sec/deep docs/",
        "mv .supabase docs/s",
        // Its new place makes it a secret.
        "cp -r plain docs/.docker",
        "cp -rT plain .docker",
        "mv plain/* .docker",
        "cp -r plain/. .docker",
        // Its new place makes it protected.
        "cp -r evil/. .github",
        "cp -r evil/ .github/",
        "cp -rT evil .github",
        "cp -T -r evil .github",
        "cp -r evil/sub/.. .github",
        "mv evil/* .github",
        "cp -r evil/.* .github",
        "mv -T evil .github",
        "cp -r docs/../evil/. ./docs/../.github",
        "cd evil && cp -r . ../.github",
        "git mv evil/copilot-instructions.md .github",
        // A rule names it there.
        "cp -r plain/. .",
        "cp -r docs/. asked",
        "cp -r docs asked",
        // An earlier command puts it into the folder, or makes the folder.
        "mkdir docs/x && cp evil/copilot-instructions.md docs/x && cp -r docs/x/. .github",
        "cp docs/a.md docs/more/copilot-instructions.md && cp -r docs/more/. .github",
        "cat docs/a.md > docs/more/copilot-instructions.md && cp -r docs/more/. .github",
        "touch docs/more/copilot-instructions.md && cp -r docs/more/. .github",
        "cat docs/a.md | tee docs/more/copilot-instructions.md && cp -r docs/more/. .github",
        "cp -r evil new && cp -r new/. .github",
        "cp docs/a.md docs/more/copilot-instructions.md && mv docs/more/* .github",
        "mv docs old && mv evil docs && cp -r docs/. .github",
        "mv .github gh && mkdir .github && mv evil/copilot-instructions.md .github",
        "mv .github gh && cp -r evil .github",
    ];
    let silent = [
        "cp -r docs old",
        "cp -r docs/. old",
        "cp -rT docs old",
        "cp -r docs/ old/",
        "mv docs/more .",
        "cp -r docs .github",
        "cp -r evil .github",
        "cp -r evil/. evil2",
        "mv evil docs",
        "git mv docs/more docs/less",
        "mkdir -p old && cp -r docs old",
        "mkdir -p x && mv docs/a.md x/",
        "mv docs/more old && mv evil new",
        "cp docs/a.md docs/a.bak && sed -i s/a/b/ docs/a.md",
        "cp -r docs/. new && cp -r evil/. new",
        "mv docs/* plain/",
    ];
    for (lines, expected) in [(&asked[..], Verdict::Ask), (&silent[..], Verdict::Allow)] {
        let verdicts = verdicts_in_auto_edit(COPIED_FILES, lines);
        let wrong: Vec<_> = verdicts.iter().filter(|(_, verdict)| *verdict != expected).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "only GNU's `sed -i` takes no word after it")]
fn a_pattern_whose_names_are_no_options_is_judged_by_them() {
    let files = ["a.txt", "b.txt", "x/-i.txt", "x/c.txt", "y/.env", "y/d.md", "docs/more/b.md"];
    let asked = [
        "cd x && sed -i s/a/b/ *.txt",
        "cd x && git add *.txt",
        "cd x && mv *.txt ../docs",
        "cd y && sed -i s/a/b/ .*",
        "cat a.txt > ./-i.txt && sed -i s/a/b/ *.txt",
        "cp a.txt ./-i.txt && sed -i s/a/b/ *.txt",
        "cp a.txt ./-i.txt && mv *.txt docs",
        "touch ./-i.txt && git add *.txt",
        "sed -i.bak s/a/b/ y/.env",
        "sed -i.env s/a/b/ a.txt",
        "chmod 600 y",
        "chmod 644 docs",
        "chmod -x .",
        "cp -r docs new && chmod 644 new",
        "rmdir .git/hooks",
        "rmdir ../x",
    ];
    let silent = [
        "sed -i s/a/b/ *.txt",
        "git add *.txt",
        "mv *.txt docs",
        "mv *.txt docs && git add -A",
        "cd y && sed -i s/a/b/ *",
        "sed -i.bak s/a/b/ a.txt",
        "sed -Ei s/a/b/ a.txt",
        "chmod 600 a.txt",
        "chmod -x a.txt b.txt",
        "chmod 755 docs",
        "mv -i a.txt c.txt",
        "rmdir docs/more",
    ];
    for (lines, expected) in [(&asked[..], Verdict::Ask), (&silent[..], Verdict::Allow)] {
        let verdicts = verdicts_in_auto_edit(&files, lines);
        let wrong: Vec<_> = verdicts.iter().filter(|(_, verdict)| *verdict != expected).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

#[test]
fn after_a_cd_that_may_have_failed_a_command_is_judged_in_each_folder() {
    let files = ["sub/a.txt", "sub/asked/b.md", "asked/c.md"];
    let asked = [
        // They ask where the `cd` has failed.
        "cd sub; touch ..",
        "cd sub\ntouch asked/new.md",
        "cd sub || exit 1; cat a.txt > asked/new.md",
        // They ask where it has succeeded.
        "cd asked; touch new.md",
        "cd asked && ls; touch new.md",
        "cd .git; mkdir hooks/x",
        "cd ..; touch new",
    ];
    let silent = [
        "cd sub; ls",
        "cd sub\nmkdir -p x\ntouch x/new",
        "cd sub || exit 1; cp a.txt b.txt",
        "set -e; cd sub; cat a.txt > new",
    ];
    for (lines, expected) in [(&asked[..], Verdict::Ask), (&silent[..], Verdict::Allow)] {
        let verdicts = verdicts_in_auto_edit(&files, lines);
        let wrong: Vec<_> = verdicts.iter().filter(|(_, verdict)| *verdict != expected).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

#[test]
fn everyday_commands_that_only_look_run_without_a_question() {
    let project = project();
    let root = fs::canonicalize(project.path()).unwrap();
    let (silent, asked) = EVERYDAY.split_once(ASKED_HEADING).unwrap();
    let lines = |text: &'static str| {
        text.lines().filter(|line| !line.is_empty() && !line.starts_with("# "))
    };
    let asked = lines(asked).map(|line| (line.rsplit_once(" # ").unwrap().0, Verdict::Ask));
    let all: Vec<_> = lines(silent).map(|line| (line, Verdict::Allow)).chain(asked).collect();
    let wrong: Vec<_> = all.iter().filter(|row| verdict(row.0, &root, true) != row.1).collect();
    assert!(wrong.is_empty(), "{}: {wrong:#?}", wrong.len());
    let silent = all.iter().filter(|row| row.1 == Verdict::Allow).count();
    assert_eq!((all.len(), silent >= 164), (182, true), "{silent}");
}

#[test]
fn without_a_sandbox_a_command_that_gets_unknown_files_is_asked_about() {
    let project = project();
    let root = fs::canonicalize(project.path()).unwrap();
    for line in ["find src -name '*.rs' | xargs wc -l", "wc -l $(git ls-files)"] {
        assert_eq!(verdict(line, &root, true), Verdict::Allow, "{line}");
        assert_eq!(verdict(line, &root, false), Verdict::Ask, "{line}");
    }
}

#[test]
fn a_variable_that_names_a_program_is_no_reason_for_a_question_in_auto() {
    let project = project();
    let root = fs::canonicalize(project.path()).unwrap();
    let policy = PolicyRules { can_confine: true, ..PolicyRules::default() };
    for line in [
        "BROWSER=none npm start",
        "COMMAND=build make",
        "RUNNER=bash make x",
        "EDITOR='code --wait' git commit",
        "RUSTC_WRAPPER=sccache cargo build",
        "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER='qemu-aarch64 -L /usr' cargo test",
        "export GIT_SSH_COMMAND='ssh -i key -o BatchMode=yes'; git log",
        "GIT_SSH=ssh git clone ../a b",
        "SSH=ssh make x",
    ] {
        let judged = decide(&policy, Mode::Auto, &Grants::default(), &effects(line, &root));
        assert_eq!(judged.verdict(), Verdict::Allow, "{line}");
    }
}

#[test]
fn a_line_of_readers_may_change_the_project_only_to_make_a_file_later_where_edits_are_allowed() {
    let project = project();
    let root = fs::canonicalize(project.path()).unwrap();
    let rule = Rule::parse("edit(/**)", RuleAction::Allow, Scope::User).unwrap();
    let sound = PolicyRules {
        rules: vec![rule],
        can_confine: true,
        bases: PathBases { roots: vec![root.clone()], home: None },
        ..PolicyRules::default()
    };
    let exposed = PolicyRules { protected_exposed: || true, ..sound.clone() };
    for (line, makes_later) in [
        ("ls > a", false),
        ("ls src | sort > a", false),
        ("cd src && ls > a", false),
        ("timeout 9 ls > a", false),
        ("bash -c 'ls > a'", false),
        ("ls > a; cat a 2>/dev/null", false),
        ("test -e a || echo b > a", true),
        ("cd src; ls > a", true),
        ("ls; bash -c 'ls > a'", true),
        ("cat Cargo.toml; nohup ls", true),
    ] {
        for (mode, policy, edits) in [
            (Mode::AutoEdit, &sound, true),
            (Mode::Auto, &sound, true),
            (Mode::Ask, &sound, false),
            (Mode::AutoEdit, &exposed, false),
        ] {
            let pass = match judge(policy, mode, &Grants::default(), effects(line, &root)) {
                Judgement::Allowed(pass) => pass,
                other => panic!("{line}, {mode:?}: {other:?}"),
            };
            let Confinement::Sandboxed { workspace_writable, .. } = pass.confinement() else {
                panic!("{line}");
            };
            assert_eq!(*workspace_writable, edits && makes_later, "{line}, {mode:?}");
            assert!(pass.runs_only_readers(), "{line}");
        }
    }
}

#[test]
fn what_a_loop_names_is_judged_as_if_it_were_written_out() {
    let project = project();
    let root = fs::canonicalize(project.path()).unwrap();
    for line in [
        "for f in src/main.rs .env; do cat \"$f\"; done",
        "for f in /etc/*; do cat \"$f\"; done",
        "d=/etc; ls $d",
        "f=.env; head -1 \"$f\"",
        "for d in ..; do ls \"$d\"; done",
    ] {
        assert_eq!(verdict(line, &root, true), Verdict::Ask, "{line}");
    }
    for (count, expected) in [(60, Verdict::Allow), (65, Verdict::Ask)] {
        let line = format!("for n in{}; do head -$n src/lib.rs; done", " 1".repeat(count));
        assert_eq!(verdict(&line, &root, true), expected, "{count}");
    }
}
