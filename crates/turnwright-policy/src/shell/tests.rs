//! Tests with the tables of lines in `tests/data/shell`: unambiguous lines and their commands,
//! ambiguous lines and what is found in them. And properties that hold for any line.

use proptest::prelude::*;
use turnwright_types::effect::PathScope;

use super::*;

const UNAMBIGUOUS: &str = include_str!("../../tests/data/shell/unambiguous.txt");
const AMBIGUOUS: &str = include_str!("../../tests/data/shell/ambiguous.txt");

/// The lines of a table with the expected results. `⟨a⟩` stands for the character with that
/// hexadecimal number; `[sh]` in front selects the POSIX dialect, `[cmd]` that of Windows.
fn rows(table: &str) -> impl Iterator<Item = (ShellDialect, String, &str)> {
    let filled = table.lines().filter(|line| !line.is_empty() && !line.starts_with("# "));
    filled.map(|row| {
        let (line, expected) = row.split_once(" ⇒ ").unwrap_or((row, ""));
        let marked = [("[sh] ", ShellDialect::Posix), ("[cmd] ", ShellDialect::Cmd)];
        let found =
            marked.iter().find_map(|(mark, value)| Some((*value, line.strip_prefix(mark)?)));
        let (dialect, line) = found.unwrap_or((ShellDialect::Bash, line));
        (dialect, characters(line), expected)
    })
}

/// Replaces `⟨…⟩` by the character with that number.
fn characters(text: &str) -> String {
    let mut parts = text.split('⟨');
    let mut whole = parts.next().unwrap().to_owned();
    for part in parts {
        let (number, rest) = part.split_once('⟩').unwrap();
        whole.extend(char::from_u32(u32::from_str_radix(number, 16).unwrap()));
        whole.push_str(rest);
    }
    whole
}

/// Prints a script as `[wrappers] words <read >write @folder …`, with unusual words in quotes.
fn show(script: &Script) -> String {
    let word = |word: &Word| {
        let is_plain = !word.text.is_empty()
            && word
                .text
                .chars()
                .all(|char| char.is_alphanumeric() || "-_./=+:,@%*?[]{}".contains(char));
        let text = if is_plain { word.text.clone() } else { format!("{:?}", word.text) };
        if word.is_glob { format!("~{text}") } else { text }
    };
    let simple = |command: &SimpleCommand| {
        let mut parts = Vec::new();
        if !command.wrappers.is_empty() {
            parts.push(format!("[{}]", command.wrappers.join(" ")));
        }
        parts.extend(command.words.iter().map(word));
        for redirect in &command.redirects {
            let sign = if redirect.is_write { '>' } else { '<' };
            parts.push(format!("{sign}{}", redirect.path.display()));
        }
        if let Some(folder) =
            command.folder.as_ref().filter(|folder| !folder.as_os_str().is_empty())
        {
            let folder = folder.to_string_lossy().replace(std::path::MAIN_SEPARATOR, "/");
            parts.push(format!("@{folder}"));
        }
        if command.has_unknown_args {
            parts.push("…".to_owned());
        }
        parts.join(" ")
    };
    script.commands.iter().map(simple).collect::<Vec<_>>().join(" ; ")
}

#[test]
fn unambiguous_lines_are_parsed_as_the_shell_parses_them() {
    let mut wrong = String::new();
    let mut count = 0;
    for (dialect, line, expected) in rows(UNAMBIGUOUS) {
        count += 1;
        let script = parse(&line, dialect);
        let got = show(&script);
        if script.ambiguity.is_some() || got != expected {
            wrong.push_str(&format!("{line}\n    {got}\n    {:?}\n", script.ambiguity));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(count >= 200, "{count}");
}

#[test]
fn ambiguous_lines_are_recognised_and_their_commands_are_found() {
    let mut wrong = String::new();
    let mut count = 0;
    for (dialect, line, expected) in rows(AMBIGUOUS) {
        count += 1;
        let script = parse(&line, dialect);
        let got = show(&script);
        let found: Vec<&str> = got.split(" ; ").collect();
        let is_found = expected.split(" ; ").all(|part| part.is_empty() || found.contains(&part));
        if script.ambiguity.is_none() || !is_found {
            wrong.push_str(&format!("{line:?}\n    {got}\n    {:?}\n", script.ambiguity));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(count >= 200, "{count}");
}

/// True if a policy that only compares words would run the line.
fn is_allowed(line: &str) -> bool {
    let rules: [&[&str]; 5] =
        [&["git", "status"], &["echo"], &["ls"], &["find"], &["cargo", "test"]];
    let extra: [&[&str]; 3] = [&["head"], &["tail"], &["cd"]];
    let script = parse(line, ShellDialect::Bash);
    let is_ruled = |command: &SimpleCommand| {
        let words: Vec<&str> = command.argv().collect();
        rules.iter().chain(&extra).any(|rule| words.starts_with(rule))
    };
    script.ambiguity.is_none()
        && script.commands.iter().all(|command| is_ruled(command) && !command.writes_file())
}

#[test]
fn no_known_way_around_word_rules_works() {
    let lines = r#"
        git status && rm -rf x          git status; rm x           git status | sh            git status & rm x
        git status⟨a⟩rm x               git status⟨d⟩⟨a⟩rm x       git status || rm x         git -c core.pager='!x' status
        echo $(rm x)                    echo `rm x`                echo "$(rm x)"             cat <(rm x)
        echo x > ~/.bashrc              echo x >> .git/hooks/a     echo x >| f                echo x &> f
        echo x 2> f                     ls > /etc/f                ls >& f                    echo x | tee ~/.zshrc
        : > f                           FOO=$(rm x) ls             LD_PRELOAD=./a.so ls       PAGER='sh -c x' git status
        GIT_SSH_COMMAND=x git status    env rm x                   nohup rm x                 timeout 9 rm x
        nice rm x                       xargs rm                   command rm x               bash -c 'rm x'
        sh -c "ls; rm x"                eval rm x                  exec rm x                  . ./x
        find . -exec rm {} +            sort -o f a                sed -i s/a/b/ f            tar --to-command=x -xf a
        awk 'BEGIN{system("x")}'        git branch -D m            git tag -d t               git --output=f diff
        rg --pre ./x p                  man -P ./x ls              less f                     vim -c ':!x'
        cd /etc && echo x > f           cd "$X" && ls > f          pushd / ; rm x             ls⟨a0⟩; rm x
        ls⟨202e⟩x                       ls #⟨a⟩rm x                l\s; r\m x                 {ls,} ; rm x
        ls {a,$(rm x)}                  [[ -v a[$(rm x)] ]]        (( a[$(rm x)] ))           ${x@P}
        cargo --config x test           npm --prefix /etc test     [ -v 'a[$(rm x)]' ]        ls ; (rm x)
    "#;
    let mut count = 0;
    for line in lines.split("  ").map(str::trim).filter(|line| !line.is_empty()) {
        count += 1;
        assert!(!is_allowed(&characters(line)), "{line}");
    }
    assert_eq!(count, 64);
}

#[test]
fn word_rules_allow_what_they_mean() {
    for line in [
        "git status -s",
        "git status | head",
        "ls -la src 2>/dev/null",
        "cargo test -p core 2>&1 | tail -20",
        "cd crates && ls",
        "RUST_BACKTRACE=1 cargo test",
        "cargo test > /dev/null 2>&1; echo \"exit: $?\"",
        "cargo test 2>&1 | tail -20; echo \"exit: ${PIPESTATUS[0]}\"",
        "CARGO_INCREMENTAL=0 RUST_MIN_STACK=9000000 cargo test",
        "NODE_OPTIONS='--no-warnings --max-old-space-size=4096' cargo test",
        "GIT_EDITOR=true GIT_PAGER=cat git status",
        "RAILS_ENV=test cargo test",
    ] {
        assert!(is_allowed(line), "{line}");
    }
}

#[test]
fn long_lines_and_many_commands_are_ambiguous_and_bounded() {
    let long = [
        "a ".repeat(5_000),
        "a;".repeat(100),
        "sudo ".repeat(60_000) + "rm",
        "eval ".repeat(1_000) + &"\"x y\" ".repeat(10_000),
        "$(".repeat(100_000),
        "`".repeat(100_000),
        "\"$(".repeat(50_000),
        "'".repeat(100_001),
        "<<a ".repeat(20_000) + "\n" + &"b\n".repeat(20_000),
        "sudo ".repeat(300) + "'" + &"x ".repeat(50_000) + "'",
        "find . -exec ".repeat(10_000),
        format!("for a in {0}; do for b in {0}; do c=1; done; done", "x ".repeat(1_000)),
        "(".repeat(4_000) + &")".repeat(4_000),
        "echo ".to_owned() + &"$(echo ".repeat(500) + &")".repeat(500),
    ];
    let dialects = [ShellDialect::Bash, ShellDialect::Cmd];
    for (line, dialect) in long.iter().flat_map(|line| dialects.map(|dialect| (line, dialect))) {
        let script = parse(line, dialect);
        assert!(script.ambiguity.is_some());
        let words: usize = script.commands.iter().map(|command| command.words.len()).sum();
        assert!(words < 400_000, "{words}");
    }
    let line = "x ".repeat(10_000) + "; rm -rf /";
    let found = parse(&line, ShellDialect::Bash).commands;
    assert!(found.iter().any(|command| command.argv().eq(["rm", "-rf", "/"])));
}

#[test]
fn a_line_for_cmd_of_which_something_is_left_out_says_so() {
    let many = "x ".repeat(30_000);
    let nested = "sudo ".repeat(300);
    for (start, expected) in [("echo ", false), ("cmd /c ", true), (nested.as_str(), true)] {
        let script = parse(&format!("{start}{many}& rd /s a"), ShellDialect::Cmd);
        assert_eq!(script.is_cut, expected, "{}", &start[..5]);
        assert!(script.commands.iter().any(|command| command.argv().eq(["rd", "/s", "a"])));
    }
}

#[test]
fn what_is_not_understood_is_named() {
    for (line, why) in [
        ("echo $((6*7))", "it contains an arithmetic expansion"),
        ("echo \"$((6*7))\"", "it contains an arithmetic expansion"),
        ("echo `date`", "it contains a command substitution"),
        ("echo $PATH", "it uses a variable"),
    ] {
        assert_eq!(parse(line, ShellDialect::Bash).ambiguity.as_deref(), Some(why), "{line}");
    }
}

#[test]
fn nested_lines_are_parsed_two_levels_deep() {
    let quote = |line: &str| format!("bash -c '{}'", line.replace('\'', r"'\''"));
    let two = quote(&quote("rm x"));
    let script = parse(&two, ShellDialect::Bash);
    assert_eq!((show(&script).as_str(), script.ambiguity), ("[bash bash] rm x", None));
    let three = quote(&two);
    let script = parse(&three, ShellDialect::Bash);
    assert!(script.ambiguity.is_some());
    assert!(script.commands.iter().any(|command| command.argv().eq(["rm", "x"])), "{script:?}");
}

fn quote(words: &[String]) -> String {
    let quoted: Vec<String> =
        words.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
    quoted.join(" ")
}

proptest! {
    #[test]
    fn any_text_can_be_parsed(line in "\\PC{0,80}", bytes in proptest::collection::vec(any::<char>(), 0..80)) {
        for line in [line, bytes.into_iter().collect()] {
            for dialect in [ShellDialect::Bash, ShellDialect::Posix] {
                let script = parse(&line, dialect);
                let is_known = script.commands.iter().all(|command| command.folder.is_some());
                prop_assert!(script.ambiguity.is_some() || is_known);
            }
        }
    }

    #[test]
    fn any_mix_of_special_characters_can_be_parsed(line in "[ab'\"\\\\$`(){}<>|&;\n \t#~*!=0-9]{0,60}") {
        let bash = parse(&line, ShellDialect::Bash);
        let posix = parse(&line, ShellDialect::Posix);
        // What is unambiguous in every shell means the same in all of them.
        prop_assert!(posix.ambiguity.is_some() || bash == posix);
    }

    #[test]
    fn quoted_words_round_trip(words in proptest::collection::vec("[ -~]{0,8}", 1..6)) {
        let words: Vec<String> = std::iter::once("a".to_owned()).chain(words).collect();
        let script = parse(&quote(&words), ShellDialect::Bash);
        prop_assert_eq!(script.ambiguity, None);
        let got: Vec<&str> = script.commands[0].argv().collect();
        prop_assert_eq!(got, words);
    }
}

#[test]
fn programs_that_handle_files_say_what_they_do_with_their_operands() {
    for (line, expected) in [
        ("mv a b c", "change deep a b -> c"),
        ("mv -t c a b", "change deep a b -> c"),
        ("cp --target-directory=c -r a", "read deep a -> c"),
        ("cp -r -- -a b", "read deep -a -> b"),
        ("sudo mv a b", "change deep a -> b"),
        ("git -C x mv a b", "change deep a -> b"),
        ("git checkout HEAD~ -- a", "change deep HEAD~ a"),
        ("git restore a", "change deep a"),
        ("ln a b", "change deep a -> b"),
        ("ln -s a b", "read deep a -> b"),
        ("tar czf x.tgz a", "read deep czf x.tgz a"),
        ("zip -r x.zip a", "read deep x.zip a"),
        ("zip -rm x.zip a", "change deep x.zip a"),
        ("rsync -a --remove-source-files a b", "change deep a -> b"),
        ("chmod 600 a", "change 600 a"),
        ("chmod -R 600 a", "change deep 600 a"),
        ("rm a", "change deep a"),
        ("touch a", "change a"),
        ("sed -i s/a/b/ c", "change s/a/b/ c"),
        ("sed s/a/b/ c", ""),
        ("cat a", ""),
        ("cargo build a", ""),
        ("git commit a", ""),
        ("dd if=a of=b", "change deep b"),
        ("curl -so a localhost", "change deep a"),
        ("wget -qO a localhost", "change deep a"),
        ("sort -u b -o a", "change deep a"),
        ("shuf --output=a b", "change deep a"),
        ("sort -u b", ""),
        ("uniq -c a b", "read deep a -> b"),
        ("uniq -c a", ""),
        ("find a -type f -delete", "change deep a"),
        ("find a -name '*.pyc' -delete", ""),
        ("git clean -fd", ""),
    ] {
        let script = parse(line, ShellDialect::Bash);
        let shown = file_use(&script.commands[0]).map(|used| {
            let verb = if used.is_change { "change" } else { "read" };
            let deep = if used.is_deep { "deep" } else { "" };
            let arrow = if used.destination.is_some() { "->" } else { "" };
            let words = used.sources.iter().map(|word| word.text.as_str());
            let last = used.destination.iter().map(|word| word.text.as_str());
            let all: Vec<_> =
                [verb, deep].into_iter().chain(words).chain([arrow]).chain(last).collect();
            all.join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
        });
        assert_eq!(shown.unwrap_or_default(), expected, "{line}");
    }
}

#[test]
fn redirects_and_operands_are_effects() {
    for (line, reads, writes) in [
        ("cat a <b >c", "/w/b /w/a", "/w/c"),
        ("cd x && ls >>../c", "/w/x /w/x/.", "/w/x/../c"),
        ("cd x; cat a /b >c >/d", "/w/x /w/a /b /w/x/a", "/w/c /d /w/x/c"),
        ("make >/tmp/c 2>&1", "", "/tmp/c"),
        ("cat $a <b >c", "/w/b", "/w/c"),
        ("cd $x && cat a >c", "", ""),
    ] {
        let resolve = |path: &Path| ResolvedPath { path: path.into(), scope: PathScope::Outside };
        let command = command(line, "/w", ShellDialect::Bash);
        let effects = effects_of(command, resolve);
        let shown = |paths: Vec<&ResolvedPath>| {
            let paths: Vec<_> = paths.iter().map(|target| target.path.to_str().unwrap()).collect();
            paths.join(" ").replace(std::path::MAIN_SEPARATOR, "/")
        };
        let Effect::Exec(command) = &effects[0] else { panic!("{line}") };
        assert_eq!(shown(command.reads.iter().collect()), reads, "{line}");
        let written = effects[1..].iter().map(|effect| match effect {
            Effect::Write(target) => target,
            other => panic!("{line}: {other:?}"),
        });
        assert_eq!(shown(written.collect()), writes, "{line}");
    }
}
