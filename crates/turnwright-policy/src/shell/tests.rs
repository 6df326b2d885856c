//! Tables of lines, in `tests/data/shell`: what is plain and what is read from it, what is not and
//! what is still found in it. And what holds for any line.

use proptest::prelude::*;

use super::*;

const PLAIN: &str = include_str!("../../tests/data/shell/plain.txt");
const DOUBTS: &str = include_str!("../../tests/data/shell/doubts.txt");

/// Lines of a table with what is said about them. `⟨a⟩` stands for the character of that number;
/// `[sh]` in front means that a POSIX shell is to run it.
fn rows(table: &str) -> impl Iterator<Item = (Dialect, String, &str)> {
    let filled = table.lines().filter(|it| !it.is_empty() && !it.starts_with("# "));
    filled.map(|row| {
        let (line, said) = row.split_once(" ⇒ ").unwrap_or((row, ""));
        let (dialect, line) = match line.strip_prefix("[sh] ") {
            Some(line) => (Dialect::Posix, line),
            None => (Dialect::Bash, line),
        };
        (dialect, characters(line), said)
    })
}

/// The text with `⟨…⟩` replaced by the character of that number.
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

/// `[wrappers] words <read >write @folder …`, with what is no plain word in quotes.
fn show(script: &Script) -> String {
    let word = |it: &Word| {
        let is_plain = !it.text.is_empty()
            && it.text.chars().all(|it| it.is_alphanumeric() || "-_./=+:,@%*?[]{}".contains(it));
        let text = if is_plain { it.text.clone() } else { format!("{:?}", it.text) };
        if it.is_glob { format!("~{text}") } else { text }
    };
    let simple = |it: &Simple| {
        let mut parts = Vec::new();
        if !it.wrappers.is_empty() {
            parts.push(format!("[{}]", it.wrappers.join(" ")));
        }
        parts.extend(it.words.iter().map(word));
        for redirect in &it.redirects {
            let sign = if redirect.is_write { '>' } else { '<' };
            parts.push(format!("{sign}{}", redirect.path.display()));
        }
        if let Some(folder) = it.folder.as_ref().filter(|it| !it.as_os_str().is_empty()) {
            parts.push(format!("@{}", folder.display()));
        }
        if it.is_open {
            parts.push("…".to_owned());
        }
        parts.join(" ")
    };
    script.commands.iter().map(simple).collect::<Vec<_>>().join(" ; ")
}

#[test]
fn plain_lines_are_read_as_the_shell_reads_them() {
    let (mut wrong, mut count) = (String::new(), 0);
    for (dialect, line, expected) in rows(PLAIN) {
        count += 1;
        let script = read(&line, dialect);
        let got = show(&script);
        if script.doubt.is_some() || got != expected {
            wrong.push_str(&format!("{line}\n    {got}\n    {:?}\n", script.doubt));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(count >= 200, "{count}");
}

#[test]
fn everything_else_is_a_doubt_and_what_it_runs_is_found() {
    let (mut wrong, mut count) = (String::new(), 0);
    for (dialect, line, expected) in rows(DOUBTS) {
        count += 1;
        let script = read(&line, dialect);
        let got = show(&script);
        let found: Vec<&str> = got.split(" ; ").collect();
        let is_found = expected.split(" ; ").all(|it| it.is_empty() || found.contains(&it));
        if script.doubt.is_none() || !is_found {
            wrong.push_str(&format!("{line:?}\n    {got}\n    {:?}\n", script.doubt));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(count >= 200, "{count}");
}

/// Whether a policy that knows words only would run it.
fn is_allowed(line: &str) -> bool {
    let rules: [&[&str]; 5] =
        [&["git", "status"], &["echo"], &["ls"], &["find"], &["cargo", "test"]];
    let extra: [&[&str]; 3] = [&["head"], &["tail"], &["cd"]];
    let script = read(line, Dialect::Bash);
    let is_ruled = |it: &Simple| {
        let words: Vec<&str> = it.argv().collect();
        rules.iter().chain(&extra).any(|rule| words.starts_with(rule))
    };
    let writes = |it: &Simple| it.redirects.iter().any(|it| it.is_write);
    script.doubt.is_none() && script.commands.iter().all(|it| is_ruled(it) && !writes(it))
}

#[test]
fn no_known_way_around_rules_of_words_works() {
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
    for line in lines.split("  ").map(str::trim).filter(|it| !it.is_empty()) {
        count += 1;
        assert!(!is_allowed(&characters(line)), "{line}");
    }
    assert_eq!(count, 64);
}

#[test]
fn rules_of_words_allow_what_they_mean() {
    for line in [
        "git status -s",
        "git status | head",
        "ls -la src 2>/dev/null",
        "cargo test -p core 2>&1 | tail -20",
        "cd crates && ls",
        "RUST_BACKTRACE=1 cargo test",
    ] {
        assert!(is_allowed(line), "{line}");
    }
}

#[test]
fn long_lines_and_many_commands_are_doubts_and_stay_bounded() {
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
    ];
    for line in long {
        let script = read(&line, Dialect::Bash);
        assert!(script.doubt.is_some());
        let words: usize = script.commands.iter().map(|it| it.words.len()).sum();
        assert!(words < 400_000, "{words}");
    }
    let line = "x ".repeat(10_000) + "; rm -rf /";
    let found = read(&line, Dialect::Bash).commands;
    assert!(found.iter().any(|it| it.argv().eq(["rm", "-rf", "/"])));
}

#[test]
fn a_line_within_a_line_is_read_twice_and_no_further() {
    let quote = |line: &str| format!("bash -c '{}'", line.replace('\'', r"'\''"));
    let two = quote(&quote("rm x"));
    let script = read(&two, Dialect::Bash);
    assert_eq!((show(&script).as_str(), script.doubt), ("[bash bash] rm x", None));
    let three = quote(&two);
    let script = read(&three, Dialect::Bash);
    assert!(script.doubt.is_some());
    assert!(script.commands.iter().any(|it| it.argv().eq(["rm", "x"])), "{script:?}");
}

fn quote(words: &[String]) -> String {
    let quoted: Vec<String> =
        words.iter().map(|it| format!("'{}'", it.replace('\'', r"'\''"))).collect();
    quoted.join(" ")
}

proptest! {
    #[test]
    fn any_text_can_be_read(line in "\\PC{0,80}", bytes in proptest::collection::vec(any::<char>(), 0..80)) {
        for line in [line, bytes.into_iter().collect()] {
            for dialect in [Dialect::Bash, Dialect::Posix] {
                let script = read(&line, dialect);
                let is_known = script.commands.iter().all(|it| it.folder.is_some());
                prop_assert!(script.doubt.is_some() || is_known);
            }
        }
    }

    #[test]
    fn any_soup_can_be_read(line in "[ab'\"\\\\$`(){}<>|&;\n \t#~*!=0-9]{0,60}") {
        let bash = read(&line, Dialect::Bash);
        let posix = read(&line, Dialect::Posix);
        // What every shell understands means the same in all of them.
        prop_assert!(posix.doubt.is_some() || bash == posix);
    }

    #[test]
    fn quoted_words_are_read_as_they_were(words in proptest::collection::vec("[ -~]{0,8}", 1..6)) {
        let words: Vec<String> = std::iter::once("a".to_owned()).chain(words).collect();
        let script = read(&quote(&words), Dialect::Bash);
        prop_assert_eq!(script.doubt, None);
        let got: Vec<&str> = script.commands[0].argv().collect();
        prop_assert_eq!(got, words);
    }
}
