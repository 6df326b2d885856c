//! Tests of what proves the work of a turn.

use serde_json::json;

use super::*;
use turnwright_types::message::ToolCall;

#[test]
#[cfg_attr(windows, ignore = "the lines are those of a POSIX shell")]
fn the_worth_of_a_command_line_is_what_decides_about_its_success() {
    let table: &[(Proof, &[&str])] = &[
        (
            Proof::Real,
            &[
                "cargo test",
                "cd web && npm test",
                "RUST_BACKTRACE=1 cargo +nightly clippy",
                "./gradlew check",
                "npx tsc --noEmit",
                "make",
                "cargo test 2>&1",
                "python3 x.py",
                "node --test",
                "./run-tests.sh",
                "sh check.sh",
                "bash -e check.sh",
                "cargo run -- --list",
                "cargo run -- fmt a.txt",
                "curl -sf localhost:8000/health",
                "sqlite3 a.db 'select 1'",
                "diff a b && diff c d",
                "set -e; diff a b; diff c d",
                "set -euo pipefail\ncargo test | tail",
                "cargo build; cargo test",
                "make || exit 1",
                "cat > x.py <<'EOF'\nls\nEOF\npython3 x.py",
                "# don't stop\ncargo test",
                "bash -lc \"cd web && npm test\"",
                "bash -lc pytest",
                "grep -q 'a|b' x && cargo test",
                "cargo build; make || exit 1",
                "cd web; diff a b && echo done",
                "set -o pipefail; cargo test 2>&1 | tail -20",
                "echo 5 | python3 x.py && echo ok",
                "python3 x.py && echo 'a; b | c & d'",
                "cargo test && git commit -m \"it's done; a \\\" b\"",
                "python3 x.py <<'EOF' && echo ok\n1; 2\nEOF",
                "cargo test\n# don't stop",
                "cargo test &>log",
            ],
        ),
        (
            Proof::Thin,
            &[
                "ls",
                "cat a.txt",
                "test -f a.txt",
                "[ -f a.txt ]",
                "cargo test --help",
                "make -n",
                "make --dry-run test",
                "python3 -m pytest --collect-only -q",
                "x --version",
                "node -v",
                "python3 -m py_compile a.py",
                "python3 -m compileall .",
                "python3 -c 'print(1)'",
                "python3 - <<'EOF'\nprint(1)\nEOF",
                "bash -n check.sh",
                "diff a b; diff c d",
                "cmp a b\ncmp c d\ntest -f e",
                "cargo test; true",
                "cargo test || true",
                "cargo test || echo failed",
                "cargo test | tail -5",
                "cargo test; echo done",
                "echo 'cargo test'",
                "bash -lc 'cargo test; true'",
                "bash -lc ls",
                "cargo test; exit 0",
                "cargo test || exit 0",
                "cargo test; x=$?",
                "cd web && npm test; echo done",
                "cargo test | grep 'a || exit 1'",
                "# don't\ncargo test; true",
                "set -e; cargo test | head",
                "python3 server.py &",
                "true",
            ],
        ),
        (
            Proof::None,
            &[
                "",
                "rm -rf build",
                "mkdir -p build",
                "git commit -m test",
                "# cargo test",
                "cd src",
                "pip install pytest",
                "npm install jest",
                "sed -i s/a/b/ test",
            ],
        ),
    ];
    for (expected, lines) in table {
        for line in *lines {
            assert_eq!(proof_of(line), *expected, "{line}");
        }
    }
}

#[test]
#[cfg_attr(windows, ignore = "the lines are those of a POSIX shell")]
fn a_check_is_known_behind_options_in_containers_and_by_a_part_of_its_name() {
    for line in [
        "cargo nextest run",
        "mvn -q -B -pl core -am -Dtest=ATest test",
        "mvn clean install",
        "docker compose exec -T web npm test",
        "npm --prefix web run test",
        "conda run -n env --no-capture-output pytest -q",
        "yarn test:unit",
        "gradle -q :core:test",
        "npx vue-tsc --noEmit",
        "python3 -m unittest -v",
        "npm test -- prettier",
        "uv run pytest -k black",
        "make fmt lint test",
        "ruff format --check .",
    ] {
        assert_eq!(proof_of(line), Proof::Real, "{line}");
        assert!(hides_failure(&format!("{line} 2>&1 | tail -20")), "{line}");
    }
    for line in [
        "rsync -a dist build",
        "gh pr create --title test",
        "git commit -m 'run black on the build'",
        "npm install -D mocha",
        "kubectl apply -f app.yaml -n test",
        "aws s3 sync dist s3://app --profile test",
        "docker push app:test",
        "terraform plan",
    ] {
        assert_eq!(proof_of(line), Proof::None, "{line}");
    }
}

/// Notes a call with this result. A command has this line.
fn note(ledger: &mut Ledger, name: &str, line: &str, result: &str, ran_changes: bool) {
    let arguments = json!({ "command": line, "id": line });
    let call = ToolCall::new("call", "p", name, arguments);
    let ok = result == "[exit 0" || !result.starts_with("[exit") && !result.starts_with("[kill");
    let result = ToolMessage::new(&call, format!("{result} · 0.1 s]\nout"), ok);
    let kind = (name == "edit_file").then_some(ToolKind::Edit);
    ledger.note(name, kind, &call.arguments, &result, ran_changes);
}

#[test]
fn a_change_takes_the_proof_back_and_the_newest_run_counts() {
    let mut ledger = Ledger::default();
    let steps = [
        ("edit_file", "", "done", false, ProofWord::None),
        ("exec", "ls", "[exit 0", false, ProofWord::Thin),
        ("exec", "cargo test", "[exit 101", false, ProofWord::Red),
        ("exec", "ls", "[exit 0", false, ProofWord::Red),
        // It writes files of its own.
        ("exec", "cargo test", "[exit 0", true, ProofWord::Green),
        ("exec", "cat a", "[exit 0", false, ProofWord::Green),
        ("exec", "touch a", "[exit 0", true, ProofWord::None),
        ("exec", "cargo test", "[stopped: it held too much", false, ProofWord::None),
        ("exec", "cargo test", "[p1 running for 9.0 s", false, ProofWord::None),
        ("exec_output", "p1", "[exit 0", false, ProofWord::Green),
        // It began before the edit.
        ("exec", "cargo test", "[p2 running for 9.0 s", false, ProofWord::Green),
        ("edit_file", "", "done", false, ProofWord::None),
        ("exec_output", "p2", "[exit 0", false, ProofWord::None),
        ("agent", "", "done", true, ProofWord::None),
    ];
    for (name, line, result, ran_changes, expected) in steps {
        note(&mut ledger, name, line, result, ran_changes);
        assert_eq!(ledger.proof(), expected, "{name} {line} {result}");
    }
    assert!(ledger.has_changed && ledger.has_called);
}

#[test]
fn the_last_check_of_a_turn_counts() {
    let test = "cargo test";
    let table = [
        (vec![(test, "[exit 101")], Some(test)),
        (vec![(test, "[killed by SIGABRT"), ("ls", "[exit 2")], Some(test)),
        (vec![(test, "[exit 101"), ("cargo test -q", "[exit 0")], None),
        (vec![("ls build", "[exit 2")], None),
        (vec![(test, "[exit 101"), ("rm -rf build", "[exit 0")], Some(test)),
        (vec![(test, "[stopped: it held too much")], None),
        (vec![(test, "The user refused it")], None),
        (vec![], None),
    ];
    for (commands, expected) in table {
        let mut ledger = Ledger::default();
        for (line, result) in &commands {
            note(&mut ledger, "exec", line, result, false);
        }
        assert_eq!(ledger.failed_check(), expected, "{commands:?}");
    }
}

#[test]
fn a_run_of_no_test_proves_little() {
    for line in ["pytest --co -q", "dotnet test --list-tests"] {
        assert_eq!(proof_of(line), Proof::Thin, "{line}");
    }
    for (output, is_nothing) in [
        ("running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 9 filtered out", true),
        ("running 2 tests\ntest result: ok. 2 passed; 0 failed\nrunning 0 tests", false),
        ("?   \tx\t[no test files]\nok  \tx/a\t0.01s [no tests to run]", true),
        ("?   \tx\t[no test files]\nok  \tx/a\t(cached)", false),
        ("No tests found, exiting with code 0", true),
        ("No test files found, exiting with code 0", true),
        ("  0 passing (2ms)", true),
        ("  10 passing (2ms)", false),
        ("\nRan 0 tests in 0.000s\n\nOK", true),
        ("\u{2139} tests 0\n\u{2139} suites 0\n\u{2139} pass 0", true),
        ("# tests 4\n# pass 4\n# fail 0", false),
        ("0 examples, 0 failures", true),
        ("Tests run: 0, Failures: 0", true),
        ("> app@1.0.3 test\n> mocha\n\n  0 passing (2ms)", true),
        ("Executed 0 tests, with 0 failures\nTest run with 1 test passed", false),
        ("==> a\nNo tests to run\n==> b\n1 test, 0 failures", false),
        ("{\"Output\":\"? x [no test files]\"}\n{\"Output\":\"ok  \\tx/a\\t0.01s\"}", false),
        ("> tests@0.1.0 build\n> tsc", false),
        ("All checks passed!\n0 errors, 0 warnings", false),
        ("no test failures, 0 tests failed", false),
        ("Passed!  - Failed: 0, Passed: 3, Skipped: 0", false),
        ("[3 lines omitted]\nrunning 0 tests", false),
        ("Finished in 0.5s", false),
        ("Test Suites: 1 skipped, 0 of 1 total\nTests:       5 skipped, 5 total\n", true),
        (" Test Files  1 skipped (1)\n      Tests  3 skipped (3)\n", true),
        ("collected 5 items\n\na.py sssss [100%]\n\n==== 5 skipped in 0.02s ====\n", true),
        ("==== 1 passed, 5 skipped in 0.02s ====\n", false),
        ("Build done. Fonts were skipped.\n", false),
        ("12 files checked, 0 skipped\n", false),
        ("No test matches the given testcase filter `A` in a.dll\n", true),
        ("No test is available in /a.dll. Make sure that test discoverer is registered", true),
        ("", false),
    ] {
        assert_eq!(ran_nothing("npm test", output), is_nothing, "{output}");
    }
    let mut ledger = Ledger::default();
    for (result, expected) in [
        ("[exit 0 \u{b7} 0.1 s]\nrunning 0 tests\n", ProofWord::Thin),
        ("[exit 0 \u{b7} 0.1 s]\nrunning 1 test\n1 passed\n", ProofWord::Green),
    ] {
        let call = ToolCall::new("c", "p", "exec", json!({ "command": "cargo test x" }));
        let result = ToolMessage::new(&call, result.to_owned(), true);
        ledger.note("exec", None, &call.arguments, &result, false);
        assert_eq!(ledger.proof(), expected);
    }
}

#[test]
#[cfg_attr(windows, ignore = "the lines are those of a POSIX shell")]
fn a_run_of_no_test_says_nothing_about_the_other_commands_of_its_line() {
    for (line, is_nothing) in [
        ("cd web && cargo test x 2>&1", true),
        ("cargo build && cargo test x", false),
        ("set -o pipefail; cargo test 2>&1 | tail -4", false),
        ("cargo test > log && tail -4 log", false),
    ] {
        assert_eq!(ran_nothing(line, "running 0 tests"), is_nothing, "{line}");
    }
}

#[test]
#[cfg_attr(windows, ignore = "the lines are those of a POSIX shell")]
fn a_test_that_fails_is_not_made_up_for_by_a_build_or_a_linter() {
    for (failed, line, expected) in [
        ("cargo test", "cargo build", ProofWord::Red),
        ("npm run test:unit", "npx tsc --noEmit", ProofWord::Red),
        ("cd web && npm test", "cd web && npm run lint", ProofWord::Red),
        ("pytest -q", "ruff check tests", ProofWord::Red),
        ("cargo test", "cargo build && cargo test -q", ProofWord::Green),
        ("npm test", "npx jest a.test.js", ProofWord::Green),
        ("pytest", "./check.sh", ProofWord::Green),
        ("mypy .", "ruff check .", ProofWord::Green),
        ("make test", "make", ProofWord::Green),
        ("bash -lc 'cargo test'", "bash -lc 'cargo build'", ProofWord::Red),
        ("bash -lc 'cd web && npm test'", "npx jest a.test.js", ProofWord::Green),
        ("./gradlew test", "./gradlew build", ProofWord::Green),
        ("./gradlew check", "./gradlew lint", ProofWord::Red),
    ] {
        let mut ledger = Ledger::default();
        note(&mut ledger, "exec", failed, "[exit 1", false);
        note(&mut ledger, "exec", line, "[exit 0", false);
        assert_eq!(ledger.proof(), expected, "{failed}, then {line}");
    }
    for (output, expected) in [
        // There was no such test.
        ("[exit 1 · 0.1 s]\nMissing script: \"test\"", ProofWord::Green),
        ("[exit 1 · 0.1 s]\nno test specified\nCommand failed with exit code 1.", ProofWord::Green),
        // One part of the project has no tests.
        ("[exit 1 · 0.1 s]\nMissing script: \"test\"\n3 failed", ProofWord::Red),
    ] {
        let mut ledger = Ledger::default();
        note(&mut ledger, "exec", "npm test", output, false);
        note(&mut ledger, "exec", "npm run build", "[exit 0", false);
        assert_eq!(ledger.proof(), expected, "{output}");
    }
}

#[test]
#[cfg_attr(windows, ignore = "the lines are those of a POSIX shell")]
fn a_formatter_proves_nothing_and_takes_no_proof_back() {
    for line in ["ruff format .", "cd web && npm run format", "uv run black src", "cargo fmt"] {
        assert_eq!(proof_of(line), Proof::Thin, "{line}");
        let mut ledger = Ledger::default();
        note(&mut ledger, "exec", "pytest", "[exit 0", false);
        note(&mut ledger, "exec", line, "[exit 0", true);
        assert_eq!(ledger.proof(), ProofWord::Green, "{line}");
        note(&mut ledger, "exec", "pytest", "[exit 1", false);
        note(&mut ledger, "exec", line, "[exit 0", true);
        assert_eq!(ledger.proof(), ProofWord::Red, "{line}");
    }
    for line in ["cargo fmt && touch a", "cargo fmt > a"] {
        let mut ledger = Ledger::default();
        note(&mut ledger, "exec", "cargo test", "[exit 0", false);
        note(&mut ledger, "exec", line, "[exit 0", true);
        assert_eq!(ledger.proof(), ProofWord::Thin, "{line}");
    }
    for line in ["sed -i 's/ black / white /' a", "npm install prettier", "touch fmt"] {
        let mut ledger = Ledger::default();
        note(&mut ledger, "exec", "cargo test", "[exit 0", false);
        note(&mut ledger, "exec", line, "[exit 0", true);
        assert_eq!(ledger.proof(), ProofWord::None, "{line}");
    }
    assert_eq!(proof_of("cargo fmt && cargo test"), Proof::Real);
}

#[test]
fn a_check_that_fails_is_not_made_up_for_by_the_next_one() {
    let mut ledger = Ledger::default();
    let steps =
        [("a", true, ProofWord::Green), ("b", false, ProofWord::Red), ("c", true, ProofWord::Red)];
    for (line, ok, expected) in steps {
        ledger.note_check(line, ok);
        assert_eq!(ledger.proof(), expected, "{line}");
    }
}
