//! Tests of the search on temporary folders.
#![expect(clippy::disallowed_methods, reason = "a test sets up its files")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use proptest::prelude::*;

use super::{
    FileList, FindOptions, Glob, GrepQuery, GrepResult, HiddenMatches, SearchDeadline, SearchScope,
    TreeEntryKind, find, grep, list_tree,
};

struct SearchFixture {
    _folder: tempfile::TempDir,
    root: PathBuf,
}

/// A folder with these files.
fn fixture(files: &[(&str, &str)]) -> SearchFixture {
    let folder = tempfile::tempdir().unwrap();
    let root = crate::real_path(folder.path()).unwrap();
    let fixture = SearchFixture { _folder: folder, root };
    for (path, text) in files {
        fixture.put(path, text.as_bytes());
    }
    fixture
}

impl SearchFixture {
    fn put(&self, path: &str, bytes: &[u8]) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn scope(&self, below: &str) -> SearchScope {
        let root = if below.is_empty() { self.root.clone() } else { self.root.join(below) };
        SearchScope {
            root,
            glob_base: self.root.clone(),
            excluded: Arc::new(|_: &Path| false),
            include_hidden: false,
            glob: None,
        }
    }

    fn short(&self, path: &Path) -> String {
        crate::files::display(path.strip_prefix(&self.root).unwrap())
    }

    fn grep(&self, query: &GrepQuery) -> GrepResult {
        grep(&self.scope(""), query, &stop()).unwrap()
    }

    /// Formats matches as `path:line: text` and context as `path-line- text`.
    fn lines(&self, found: &GrepResult) -> Vec<String> {
        let mut lines = Vec::new();
        for file in &found.files {
            let path = self.short(&file.path);
            for line in &file.lines {
                let mark = if line.is_match { ':' } else { '-' };
                lines.push(format!("{path}{mark}{}{mark} {}", line.number, line.text));
            }
        }
        lines
    }

    fn files(&self, scope: &SearchScope, pattern: &str) -> Vec<String> {
        let query = GrepQuery { files_only: true, ..query(pattern) };
        let found = grep(scope, &query, &stop()).unwrap();
        found.files.iter().map(|file| self.short(&file.path)).collect()
    }

    fn find(&self, glob: &str, wanted: FindOptions) -> FileList {
        let glob = Some(Glob::parse(glob, &self.root).unwrap());
        find(&SearchScope { glob, ..self.scope("") }, wanted, &stop())
    }

    fn names(&self, glob: &str) -> Vec<String> {
        self.find(glob, FindOptions::default()).files.iter().map(|path| self.short(path)).collect()
    }

    fn list(&self, below: &str, depth: usize, include_hidden: bool) -> (Vec<String>, usize) {
        let scope = SearchScope { include_hidden, ..self.scope(below) };
        let tree = list_tree(&scope, depth, &stop()).unwrap();
        let name = |entry: &super::TreeEntry| {
            let path = crate::files::display(&entry.path);
            match entry.kind {
                TreeEntryKind::Folder => format!("{path}/"),
                TreeEntryKind::Collapsed(count) => format!("{path}/ {count}"),
                TreeEntryKind::Link => format!("{path}@"),
                TreeEntryKind::Special => format!("{path}|"),
                TreeEntryKind::File(_) => path,
            }
        };
        (tree.entries.iter().map(name).collect(), tree.ignored)
    }
}

fn query(pattern: &str) -> GrepQuery {
    GrepQuery { pattern: pattern.to_owned(), ..GrepQuery::default() }
}

fn stop() -> SearchDeadline {
    SearchDeadline::new(Arc::default(), Duration::from_secs(600))
}

const TREE: &[(&str, &str)] = &[
    (".gitignore", "*.log\n/build/\n!keep.log\n"),
    (".ignore", "generated.rs\n"),
    (".hidden/x.rs", "word"),
    (".github/ci.yml", "word"),
    ("a.log", "word"),
    ("keep.log", "word"),
    ("build/out.rs", "word"),
    ("src/main.rs", "word"),
    ("src/generated.rs", "word"),
    ("src/deep/.gitignore", "secret_plan.rs\n!a.log\n"),
    ("src/deep/a.log", "word"),
    ("src/deep/secret_plan.rs", "word"),
    ("src/deep/build/b.rs", "word"),
];

#[test]
fn ignore_rules_count_with_and_without_a_repository() {
    for in_repository in [false, true] {
        let fixture = fixture(TREE);
        if in_repository {
            fixture.put(".git/HEAD", b"word");
            fixture.put(".git/info/exclude", b"main.rs\n");
        }
        let mut expected = vec!["keep.log", "src/deep/a.log", "src/deep/build/b.rs"];
        if !in_repository {
            expected.push("src/main.rs");
        }
        assert_eq!(fixture.files(&fixture.scope(""), "word"), expected, "{in_repository}");
        let all = fixture.files(&SearchScope { include_hidden: true, ..fixture.scope("") }, "word");
        assert_eq!(all.len(), 10, "`.git` is no part of it: {all:?}");
    }
}

#[test]
fn an_ignored_or_hidden_place_that_is_named_is_searched() {
    let fixture = fixture(TREE);
    fixture.put(".git/HEAD", b"");
    assert_eq!(fixture.files(&fixture.scope("build"), "word"), ["build/out.rs"]);
    assert_eq!(fixture.files(&fixture.scope(".github"), "word"), [".github/ci.yml"]);
    assert_eq!(fixture.files(&fixture.scope("a.log"), "word"), ["a.log"]);
    // Rules of parent folders apply in a folder that is not ignored itself.
    fixture.put("src/x.log", b"word");
    assert!(!fixture.files(&fixture.scope("src"), "word").contains(&"src/x.log".to_owned()));
}

#[test]
fn the_rules_of_a_home_folder_do_not_hide_a_project_without_a_repository() {
    let fixture = fixture(&[(".gitignore", "*\n"), ("project/a.rs", "word")]);
    assert_eq!(fixture.files(&fixture.scope("project"), "word"), ["project/a.rs"]);
}

#[test]
fn the_ignore_rules_of_a_repository_do_not_reach_into_one_below_it() {
    let fixture = fixture(&[
        (".gitignore", "*\n"),
        (".git/HEAD", ""),
        ("project/.gitignore", "*.log\n"),
        ("project/.git/HEAD", ""),
        ("project/a.log", "word"),
        ("project/a.rs", "word"),
        ("project/sub/.git", "gitdir: ../.git/modules/sub\n"),
        ("project/sub/b.log", "word"),
    ]);
    let expected = ["project/a.rs", "project/sub/b.log"];
    assert_eq!(fixture.files(&fixture.scope("project"), "word"), expected);
    let tree = list_tree(&fixture.scope("project"), 2, &stop()).unwrap();
    let paths: Vec<_> = tree.entries.iter().map(|entry| entry.path.as_path()).collect();
    assert_eq!(paths, ["a.rs", "sub", "sub/b.log"].map(Path::new));
}

#[test]
fn matches_come_in_the_order_of_paths_and_lines_with_what_is_around_them() {
    let fixture =
        fixture(&[("b", "1\nfoo\n3\n4\n5\n6\nfoo\nfoo\n9\n"), ("a/c", "foo\r\nbar foo\r\n")]);
    let found = fixture.grep(&query("foo"));
    assert_eq!(
        fixture.lines(&found),
        ["a/c:1: foo", "a/c:2: bar foo", "b:2: foo", "b:7: foo", "b:8: foo"]
    );
    assert_eq!(
        (found.matches, found.files_with_matches, found.files_searched, found.next_offset),
        (5, 2, 2, None)
    );
    let found = fixture.grep(&GrepQuery { context: 1, ..query("foo$") });
    assert_eq!(
        fixture.lines(&found)[2..],
        ["b-1- 1", "b:2: foo", "b-3- 3", "b-6- 6", "b:7: foo", "b:8: foo", "b-9- 9"]
    );
}

#[test]
fn patterns_and_options_select_the_expected_lines() {
    let text = "fn foo(a)\nFOO\na.b\naxb\nstart\nend\nx|y\ncrlf\r\n";
    let fixture = fixture(&[("f", text)]);
    let lines = |query: &GrepQuery| -> Vec<u64> {
        let found = fixture.grep(query);
        found.files.iter().flat_map(|file| &file.lines).map(|line| line.number).collect()
    };
    let table: Vec<(GrepQuery, &[u64])> = vec![
        (query("foo"), &[1]),
        (GrepQuery { ignore_case: true, ..query("foo") }, &[1, 2]),
        (query("a.b"), &[3, 4]),
        (GrepQuery { literal: true, ..query("a.b") }, &[3]),
        (query("foo("), &[1]),
        (query("crlf$"), &[8]),
        (query("^$"), &[]),
        (query("start.end"), &[]),
        (GrepQuery { multiline: true, ..query("start.end") }, &[5, 6]),
        (query("start\\nend"), &[5, 6]),
        (query("start\nend"), &[5, 6]),
        (query("lf\\r"), &[8]),
        (query("x\\|y"), &[7]),
    ];
    for (query, expected) in table {
        assert_eq!(lines(&query), expected, "{query:?}");
    }
    let found = fixture.grep(&query("foo("));
    assert!(found.regex_error.is_some_and(|error| error.contains("unclosed group")));
    let huge = GrepQuery { pattern: "(a{1000}){1000}".to_owned(), ..GrepQuery::default() };
    assert!(grep(&fixture.scope(""), &huge, &stop()).unwrap_err().contains("size limit"));
    let deep = GrepQuery {
        pattern: format!("{}a{}", "(".repeat(500), ")".repeat(500)),
        ..GrepQuery::default()
    };
    assert!(fixture.grep(&deep).regex_error.is_some());
}

#[test]
fn a_long_line_is_cut_around_its_match() {
    let left = "ä".repeat(50_000);
    let right = "z".repeat(50_000);
    let fixture = fixture(&[("long", &format!("{left}MATCH{right}\nMATCH{right}\n{left}MATCH"))]);
    let found = fixture.grep(&query("MATCH"));
    for line in &found.files[0].lines {
        assert!(line.text.contains("MATCH") && line.text.chars().count() <= 302, "{}", line.text);
    }
    let middle = &found.files[0].lines[0].text;
    let at = middle.find("MATCH").map(|index| middle[..index].chars().count()).unwrap();
    assert!((140..160).contains(&at), "{at}");
    assert!(middle.starts_with('…') && middle.ends_with('…'));
}

#[test]
fn text_is_found_in_utf_16_and_not_in_what_is_binary() {
    let fixture = fixture(&[("utf8", "word")]);
    let utf16: Vec<u8> = "\u{feff}ein word\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let big: Vec<u8> = "\u{feff}word\n".encode_utf16().flat_map(u16::to_be_bytes).collect();
    fixture.put("utf16", &utf16);
    fixture.put("utf16be", &big);
    fixture.put("bom", "\u{feff}word".as_bytes());
    fixture.put("binary", b"word\n\0\nword");
    fixture.put("latin1", b"caf\xe9 word");
    let log = format!("word\n{}\0", "x\n".repeat(100_000));
    fixture.put("log", log.as_bytes());
    let found = fixture.grep(&query("word"));
    assert_eq!(
        fixture.lines(&found),
        [
            "bom:1: word",
            "latin1:1: café word",
            "log:1: word",
            "utf16:1: ein word",
            "utf16be:1: word",
            "utf8:1: word"
        ]
    );
}

#[test]
fn text_with_a_stray_nul_byte_is_searched_and_named() {
    let code = "const a = 1;\n".repeat(20) + "const key = `${a}\0${b}`;\nneedle\n";
    let log = "a line of a log\n".repeat(2_000) + "\0\0\0\nneedle\n";
    let large = "a line of a log\n".repeat(600_000) + "\0\nneedle\n";
    let fixture = fixture(&[("code.ts", &code), ("large.log", &large), ("log", &log)]);
    let archive = ["echo key\n".repeat(2_000).as_bytes(), b"\0\xff\xfe\nneedle\n"].concat();
    fixture.put("setup.run", &archive);
    fixture.put("a.sqlite", &b"SQLite\0\0\0\nneedle\n".repeat(90));
    let found = fixture.grep(&query("const key|needle"));
    assert_eq!(
        fixture.lines(&found),
        [
            "code.ts:21: const key = `${a}\u{fffd}${b}`;",
            "code.ts:22: needle",
            "large.log:600002: needle",
            "log:2002: needle"
        ]
    );
    let names: Vec<_> = found.garbled.iter().map(|path| fixture.short(path)).collect();
    assert_eq!(names, ["code.ts"]);
}

/// Encodes a text, which the encoding can hold.
fn encoded(text: &str, encoding: &'static encoding_rs::Encoding) -> Vec<u8> {
    let (bytes, _, is_lossy) = encoding.encode(text);
    assert!(!is_lossy);
    bytes.into_owned()
}

#[test]
fn text_is_found_in_every_encoding_that_is_read() {
    use encoding_rs::{BIG5, EUC_KR, GBK, SHIFT_JIS, WINDOWS_1251, WINDOWS_1252};
    let filler = "plain text that every encoding holds\n".repeat(9_000);
    let table = [
        ("gbk", GBK, "// 这个函数读取配置文件，然后返回结果\n", "配置文件"),
        ("big5", BIG5, "// 這個函式讀取設定檔，然後傳回結果\n", "設定檔"),
        ("sjis", SHIFT_JIS, "// この関数は設定ファイルを読み込みます\n", "設定ファイル"),
        ("euckr", EUC_KR, "// 이 함수는 설정 파일을 읽고 결과를 반환합니다\n", "설정 파일"),
        (
            "cyrillic",
            WINDOWS_1251,
            "// Эта функция читает настройки и возвращает их\n",
            "настройки",
        ),
        ("latin1", WINDOWS_1252, "// Übergrößenträger mögen Käse, schön süß\n", "KÄSE"),
    ];
    for (name, encoding, line, pattern) in table {
        let fixture = fixture(&[]);
        // The first characters that are not ASCII stand far behind what one read gets.
        let text = format!("{filler}{line}next(value)\n");
        fixture.put(name, &encoded(&text, encoding));
        let ignore_case = GrepQuery { ignore_case: true, ..query(pattern) };
        let spanning = GrepQuery { multiline: true, ..query(&format!("(?i){pattern}.*?next")) };
        let shown = format!("{name}:9001: {}", line.trim_end());
        assert_eq!(
            fixture.lines(&fixture.grep(&ignore_case)),
            std::slice::from_ref(&shown),
            "{name}"
        );
        let next = format!("{name}:9002: next(value)");
        assert_eq!(fixture.lines(&fixture.grep(&spanning)), [shown, next], "{name}");
        assert_eq!(fixture.files(&fixture.scope(""), &format!("(?i){pattern}")), [name]);
    }
    // The second byte of these characters is an ASCII letter, which is not a match.
    let fixture = fixture(&[]);
    fixture.put("sjis", &encoded("表示する関数です。ソースコード\n", SHIFT_JIS));
    assert_eq!(fixture.grep(&GrepQuery { literal: true, ..query("\\") }).matches, 0);
}

#[test]
fn a_multi_line_pattern_matches_whatever_the_line_endings_are() {
    let utf16 = |text: &str| -> Vec<u8> {
        "\u{feff}".encode_utf16().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect()
    };
    let text = "start {\r\n  Käse;\r\n\r\n}\r\n";
    let fixture = fixture(&[("crlf", text), ("lf", &text.replace('\r', ""))]);
    fixture.put("utf16", &utf16(text));
    fixture.put("latin1", &encoded(text, encoding_rs::WINDOWS_1252));
    let literal = GrepQuery { literal: true, ..query("Käse;\n\n}") };
    let dot = GrepQuery { multiline: true, ..query("start .$.*Käse;$\n^$") };
    for query in
        [query(r"\{\n  Käse;"), query(r"Käse;\n\n\}$"), query(r"Käse[^\n]\n\s"), literal, dot]
    {
        let files = fixture.grep(&GrepQuery { files_only: true, ..query.clone() }).files;
        let names: Vec<_> = files.iter().map(|file| fixture.short(&file.path)).collect();
        assert_eq!(names, ["crlf", "latin1", "lf", "utf16"], "{query:?}");
    }
    // A pattern that names carriage returns sees them.
    assert_eq!(fixture.files(&fixture.scope(""), r"\{\r\n"), ["crlf", "latin1", "utf16"]);
}

#[cfg(unix)]
#[test]
fn nothing_hangs_on_a_fifo_and_links_are_not_followed() {
    use std::os::unix::fs::symlink;
    let other = fixture(&[("outside", "word")]);
    let fixture = fixture(&[("a/file", "word")]);
    let status = std::process::Command::new("mkfifo").arg(fixture.root.join("fifo")).status();
    assert!(status.unwrap().success());
    symlink(&fixture.root, fixture.root.join("a/loop")).unwrap();
    symlink(&other.root, fixture.root.join("out")).unwrap();
    symlink(other.root.join("outside"), fixture.root.join("link")).unwrap();
    assert_eq!(fixture.files(&fixture.scope(""), "word"), ["a/file"]);
    assert_eq!(fixture.names("*"), ["a/file", "a/loop", "link", "out"]);
    assert_eq!(fixture.list("", 3, false).0, ["a/", "a/file", "a/loop@", "fifo|", "link@", "out@"]);
    // A folder that became a link after the permission check.
    assert!(list_tree(&fixture.scope("out"), 2, &stop()).is_err());
    assert!(fixture.files(&fixture.scope("out"), "word").is_empty());
}

#[test]
fn files_that_may_hold_secrets_are_counted_and_not_searched() {
    let fixture = fixture(&[(".env", "word"), ("server.pem", "word"), ("a", "word")]);
    let found = fixture.grep(&query("word"));
    assert_eq!((fixture.lines(&found).len(), found.secret_files), (1, 1));
    let everything = SearchScope { include_hidden: true, ..fixture.scope("") };
    // The count must not reveal what is in the files.
    for pattern in ["word", "none"] {
        assert_eq!(grep(&everything, &query(pattern), &stop()).unwrap().secret_files, 2);
    }
    assert_eq!(fixture.grep(&query("none")).hidden, HiddenMatches::default());
    assert_eq!(fixture.files(&fixture.scope("server.pem"), "word"), ["server.pem"]);
    let own = fixture.root.join("own");
    let except = SearchScope { excluded: Arc::new(move |path| path == own), ..everything };
    fixture.put("own/login.json", b"word");
    assert_eq!(fixture.files(&except, "word"), ["a"]);
}

#[test]
fn a_search_ends_when_it_is_cancelled_or_its_time_is_over() {
    let fixture = fixture(&[("a", "word"), ("b", "word")]);
    let cancelled = SearchDeadline::new(Arc::new(AtomicBool::new(true)), Duration::from_secs(600));
    let late = SearchDeadline::new(Arc::default(), Duration::ZERO);
    for stop in [cancelled, late] {
        let found = grep(&fixture.scope(""), &query("word"), &stop).unwrap();
        assert!(found.is_incomplete && found.files.is_empty());
        assert!(find(&fixture.scope(""), FindOptions::default(), &stop).is_incomplete);
    }
}

#[test]
fn a_search_that_has_found_enough_files_shows_a_page_of_them() {
    let fixture = fixture(&[]);
    for number in 0..300 {
        fixture.put(&format!("d{}/f{number}", number % 7), b"needle\n");
    }
    let found = fixture.grep(&query("needle"));
    assert!(found.is_incomplete);
    assert_eq!((found.matches, found.shown, found.next_offset), (150, 100, Some(100)));
    assert_eq!(fixture.lines(&found).len(), 100);
}

#[test]
fn a_file_that_is_not_wholly_decoded_is_named() {
    let fixture = fixture(&[("utf8", "word über\n")]);
    let broken =
        [b"word grun \xff\n".as_slice(), "schöne Grüße über Öl ".repeat(3).as_bytes(), b"\n"]
            .concat();
    fixture.put("broken", &broken.repeat(20));
    fixture.put("cut", &"word ü".as_bytes()[..6]);
    fixture.put("picture", b"\xff\xd8\xff\xe0 word");
    for multiline in [false, true] {
        let found = fixture.grep(&GrepQuery { multiline, ..query("word") });
        let names: Vec<_> = found.garbled.iter().map(|path| fixture.short(path)).collect();
        assert_eq!(names, ["broken"]);
        let files: Vec<_> = found.files.iter().map(|file| fixture.short(&file.path)).collect();
        assert_eq!(files, ["broken", "cut", "utf8"]);
        let alone = grep(&fixture.scope("picture"), &query("word"), &stop()).unwrap();
        assert_eq!((alone.files_searched, alone.matches), (0, 0));
    }
}

#[test]
fn brackets_in_a_glob_also_stand_for_themselves() {
    let files = [
        "app/[id].tsx",
        "app/[[...all]]/page.tsx",
        "app/i.tsx",
        "{{cookiecutter.slug}}/setup.py",
        "{rule} one.md",
        "Report, final.md",
    ];
    let fixture = fixture(&files.map(|path| (path, "")));
    for (glob, expected) in [
        ("[id].tsx", ["app/[id].tsx", "app/i.tsx"].as_slice()),
        ("app/[id].tsx", &["app/[id].tsx", "app/i.tsx"]),
        ("app/[[...all]]/*.tsx", &["app/[[...all]]/page.tsx"]),
        ("**/[id].*", &["app/[id].tsx", "app/i.tsx"]),
        ("{{cookiecutter.slug}}/**/*.py", &["{{cookiecutter.slug}}/setup.py"]),
        ("{rule}*.md", &["{rule} one.md"]),
        ("Report, final.md", &["Report, final.md"]),
    ] {
        assert_eq!(fixture.names(glob), expected, "{glob}");
    }
}

#[test]
fn globs_match_the_expected_files() {
    let files = ["a.rs", "src/b.rs", "src/x/c.rs", "src/x/d.min.js", "src/x/e.js", "web/f.tsx"];
    let fixture = fixture(&files.map(|path| (path, "")));
    let absolute = format!("{}/src/**/*.rs", fixture.root.display());
    let table: &[(&str, &[&str])] = &[
        ("*.rs", &["a.rs", "src/b.rs", "src/x/c.rs"]),
        ("c.rs", &["src/x/c.rs"]),
        ("src/*.rs", &["src/b.rs"]),
        ("./src/*.rs", &["src/b.rs"]),
        ("src/**/*.rs", &["src/b.rs", "src/x/c.rs"]),
        (&absolute, &["src/b.rs", "src/x/c.rs"]),
        ("**/x/*", &["src/x/c.rs", "src/x/d.min.js", "src/x/e.js"]),
        ("*.{js,tsx}", &["src/x/d.min.js", "src/x/e.js", "web/f.tsx"]),
        ("*.js,*.tsx", &["src/x/d.min.js", "src/x/e.js", "web/f.tsx"]),
        ("*.js,!*.min.js", &["src/x/e.js"]),
        ("!src/**", &["a.rs", "web/f.tsx"]),
        ("src/x/", &["src/x/c.rs", "src/x/d.min.js", "src/x/e.js"]),
        ("*.{js, tsx}", &["src/x/d.min.js", "src/x/e.js", "web/f.tsx"]),
        ("src\\x\\*.js", &["src/x/d.min.js", "src/x/e.js"]),
        ("src\\**\\*.rs", &["src/b.rs", "src/x/c.rs"]),
        ("[ab].rs", &["a.rs", "src/b.rs"]),
        ("*", &files),
        ("**/*", &files),
        ("x", &[]),
    ];
    for (glob, expected) in table {
        assert_eq!(fixture.names(glob), *expected, "{glob}");
    }
    assert!(Glob::parse("[", &fixture.root).is_err());
    // In a subfolder, a glob may be relative to it or to the project.
    for glob in ["x/*.rs", "src/x/*.rs"] {
        let glob = Some(Glob::parse(glob, &fixture.root).unwrap());
        let found =
            find(&SearchScope { glob, ..fixture.scope("src") }, FindOptions::default(), &stop());
        assert_eq!(found.total, 1);
    }
}

#[test]
fn a_missing_name_suggests_similar_ones() {
    let fixture = fixture(&[("src/component.rs", ""), ("src/other.rs", ""), ("components/x", "")]);
    let near = |glob: &str| -> Vec<String> {
        fixture
            .find(glob, FindOptions::default())
            .similar
            .iter()
            .map(|path| fixture.short(path))
            .collect()
    };
    assert_eq!(near("compnent.rs"), ["src/component.rs", "components"]);
    assert_eq!(near("src/components"), ["components", "src/component.rs"]);
    assert_eq!(near("*.xyz"), [""; 0]);
}

#[test]
fn the_last_changed_comes_first_if_that_is_asked_for() {
    let fixture = fixture(&[("a", ""), ("b", ""), ("c", "")]);
    for (name, age) in [("a", 20), ("b", 10), ("c", 30)] {
        let time = std::time::SystemTime::now() - Duration::from_secs(age);
        fs::File::options()
            .write(true)
            .open(fixture.root.join(name))
            .unwrap()
            .set_modified(time)
            .unwrap();
    }
    let wanted = FindOptions { recent_first: true, ..FindOptions::default() };
    let names: Vec<_> =
        fixture.find("*", wanted).files.iter().map(|path| fixture.short(path)).collect();
    assert_eq!(names, ["b", "a", "c"]);
}

#[test]
fn a_tree_shows_every_folder_before_all_of_one() {
    let fixture =
        fixture(&[(".gitignore", "*.log\n/out\n"), ("z/last", ""), ("a.log", ""), ("out/x", "")]);
    for number in 0..300 {
        fixture.put(&format!("many/f{number:03}"), b"");
        fixture.put(&format!("node_modules/p{number}/index.js"), b"");
    }
    for folder in ["m1", "m2", "m3", "m4", "m5"] {
        for number in 0..50 {
            fixture.put(&format!("{folder}/f{number:02}"), b"");
        }
    }
    let (entries, ignored) = fixture.list("", 3, false);
    assert!(entries.len() <= 200);
    for shown in ["many/ 300", "node_modules/ 300", "m1/f49", "m5/ 50", "z/last"] {
        assert!(entries.contains(&shown.to_owned()), "{shown}: {entries:?}");
    }
    assert_eq!(ignored, 3, "the file with the rules is hidden");
    assert!(fixture.list("", 1, true).0.contains(&"a.log".to_owned()));
    // A folder that is named explicitly is listed although its parent ignores it.
    assert_eq!(fixture.list("out", 2, false).0, ["x"]);
    let scope = fixture.scope("many");
    let tree = list_tree(&scope, 2, &stop()).unwrap();
    assert_eq!((tree.entries.len(), tree.omitted), (200, 100));
}

/// Collects all pages.
fn pages(fixture: &SearchFixture, query: &GrepQuery) -> Vec<String> {
    let mut all = Vec::new();
    let mut next = Some(0);
    while let Some(offset) = next {
        let found = fixture.grep(&GrepQuery { offset, ..query.clone() });
        let lines = if query.files_only {
            found.files.iter().map(|file| fixture.short(&file.path)).collect()
        } else {
            fixture.lines(&found)
        };
        let bytes: usize = lines.iter().map(String::len).sum();
        assert!(found.shown <= 100 && bytes < 40 * 1024, "{} in {bytes}", found.shown);
        assert!(
            found.next_offset.is_none_or(|next| next == offset + found.shown && found.shown > 0)
        );
        all.extend(lines);
        next = found.next_offset;
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn all_pages_together_are_the_whole_result(
        files in proptest::collection::vec((0_usize..250, 1_usize..700), 1..8),
    ) {
        let fixture = fixture(&[]);
        let mut expected = Vec::new();
        for (number, (matches, width)) in files.iter().enumerate() {
            let text: Vec<String> =
                (0..*matches).map(|index| format!("hit {index} {}", "x".repeat(width % 290))).collect();
            fixture.put(&format!("d{}/f{number}", number % 3), format!("-\n{}\n-\n", text.join("\n-\n")).as_bytes());
            let lines = (0..*matches).zip(text);
            expected.extend(lines.map(|(at, line)| format!("d{}/f{number}:{}: {line}", number % 3, at * 2 + 2)));
        }
        let mut seen = pages(&fixture, &query("^hit"));
        // The order is by path and line; nothing is missing and nothing is repeated.
        let paths: Vec<_> = seen.iter().map(|line| line.split(':').next().unwrap().to_owned()).collect();
        prop_assert!(paths.is_sorted());
        seen.sort();
        expected.sort();
        prop_assert_eq!(seen, expected);
        let files_only = GrepQuery { files_only: true, ..query("^hit") };
        let full = files.iter().filter(|file| file.0 > 0).count();
        prop_assert_eq!(pages(&fixture, &files_only).len(), full);
    }
}

#[test]
fn a_thousand_matches_are_counted_per_file() {
    let fixture = fixture(&[("a", &"hit\n".repeat(5_000)), ("b", "hit\n")]);
    let found = fixture.grep(&query("hit"));
    assert_eq!((found.matches, found.capped_files, found.next_offset), (1_001, 1, Some(100)));
    assert_eq!(pages(&fixture, &query("hit")).len(), 1_001);
}

#[test]
fn a_file_that_cannot_be_searched_is_counted() {
    let fixture = fixture(&[("a", "word")]);
    // A line that is longer than the limit of the searcher.
    fixture.put("wide", &vec![b'x'; 33 << 20]);
    let found = fixture.grep(&query("word"));
    assert_eq!((found.matches, found.unreadable), (1, 1));
}

#[cfg(unix)]
#[test]
fn endless_ignore_files_are_not_read() {
    use std::os::unix::fs::symlink;
    for name in [".gitignore", ".ignore"] {
        for odd in ["/dev/zero", "fifo"] {
            let fixture = fixture(&[("a.rs", "word"), ("sub/b.rs", "word")]);
            // A FIFO that nobody writes to.
            let made = std::process::Command::new("mkfifo").arg(fixture.root.join("fifo")).status();
            assert!(made.unwrap().success());
            let odd = fixture.root.join(odd);
            symlink(&odd, fixture.root.join("sub").join(name)).unwrap();
            assert_eq!(fixture.files(&fixture.scope(""), "word"), ["a.rs"]);
            assert_eq!(fixture.list("", 2, false).0, ["a.rs", "fifo|", "sub/"]);
            // A folder that is named explicitly is searched.
            assert_eq!(fixture.files(&fixture.scope("sub"), "word"), ["sub/b.rs"]);
            symlink(&odd, fixture.root.join(name)).unwrap();
            assert_eq!(fixture.files(&fixture.scope(""), "word"), ["a.rs"]);
            assert_eq!(fixture.names("*.rs"), ["a.rs"]);
        }
    }
}
