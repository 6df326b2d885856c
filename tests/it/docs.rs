//! The documentation: its links lead somewhere, its command lines are understood, the messages that it quotes
//! are those of the program, and the Chinese pages are those of the English ones.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use ring::digest::{SHA256, digest};
use turnwright::internals::command_line;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn files_below(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_below(&path, extension));
        } else if path.extension().is_some_and(|it| it == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Everything that is written for people.
fn pages() -> Vec<PathBuf> {
    let mut pages = files_below(&root().join("docs"), "md");
    pages.extend(files_below(&root().join(".github"), "md"));
    pages.extend(["README.md", "ARCHITECTURE.md", "CHANGELOG.md"].map(|it| root().join(it)));
    for folder in fs::read_dir(root().join("crates")).unwrap() {
        pages.push(folder.unwrap().path().join("README.md"));
    }
    pages
}

fn name(page: &Path) -> String {
    page.strip_prefix(root()).unwrap().display().to_string()
}

/// A line of a page, and the language of the fenced block that it is in.
struct Line<'t> {
    number: usize,
    block: Option<&'t str>,
    text: &'t str,
}

fn lines(text: &str) -> Vec<Line<'_>> {
    let mut block = None;
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            block = if block.is_some() { None } else { Some(language.trim()) };
        } else {
            lines.push(Line { number: index + 1, block, text: line });
        }
    }
    assert_eq!(block, None, "a block without an end");
    lines
}

/// The anchors of a page's headings, as GitHub and the site make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let heading = |line: &Line<'_>| {
        let title = line.text.strip_prefix('#')?.trim_start_matches('#').strip_prefix(' ')?;
        let kept = title.chars().filter(|it| it.is_alphanumeric() || " -_".contains(*it));
        Some(kept.collect::<String>().to_lowercase().replace(' ', "-"))
    };
    lines(text).iter().filter(|it| it.block.is_none()).filter_map(heading).collect()
}

/// The targets of the Markdown links in a line, without those in code.
fn links(line: &str) -> Vec<&str> {
    let outside: Vec<_> = line.split("](").skip(1).collect();
    outside.into_iter().filter_map(|it| Some(it.split_once(')')?.0)).collect()
}

fn check(what: &str, wrong: &[String]) {
    assert!(wrong.is_empty(), "{what}:\n  {}\n", wrong.join("\n  "));
}

#[test]
fn every_link_to_a_file_or_heading_leads_there() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for page in pages() {
        let text = read(&page);
        for line in lines(&text).iter().filter(|it| it.block.is_none()) {
            for link in links(line.text).into_iter().filter(|it| !it.contains("://")) {
                seen += 1;
                let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
                let target =
                    if path.is_empty() { page.clone() } else { page.parent().unwrap().join(path) };
                let holds = target.exists()
                    && (anchor.is_empty() || anchors(&read(&target)).contains(anchor));
                if !holds {
                    wrong.push(format!("{}:{}: {link}", name(&page), line.number));
                }
            }
        }
    }
    check("links that lead nowhere", &wrong);
    assert!(seen > 60, "only {seen} links were found");
}

/// Links out of `docs` would be broken on the site.
#[test]
fn the_site_has_every_page_of_the_folder() {
    let docs = root().join("docs");
    let contents = read(&docs.join("SUMMARY.md"));
    let listed: BTreeSet<_> = contents.lines().flat_map(links).map(|it| docs.join(it)).collect();
    let there: BTreeSet<_> =
        files_below(&docs, "md").into_iter().filter(|it| !it.ends_with("SUMMARY.md")).collect();
    assert_eq!(listed, there);
    let mut wrong = Vec::new();
    for page in there {
        let text = read(&page);
        for link in
            lines(&text).iter().filter(|it| it.block.is_none()).flat_map(|it| links(it.text))
        {
            let folders_up = page.strip_prefix(&docs).unwrap().components().count();
            if link.matches("../").count() >= folders_up {
                wrong.push(format!("{}: {link}", name(&page)));
            }
        }
    }
    check("links that leave the site", &wrong);
}

/// The words of a command line of a shell, up to its end, a pipe or a redirection.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in line.chars() {
        match (quote, letter) {
            (Some(end), it) if it == end => quote = None,
            (None, '"' | '\'') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, '|' | '<' | '>' | ';' | '&') => break,
            (None, '#') if word.is_none() => break,
            (None, ' ') => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

/// Why the program would not understand a command line. Placeholders count as values.
fn misunderstood(line: &str) -> Option<String> {
    let plain = line.replace(['[', ']'], "").replace("...", "");
    let error = command_line().try_get_matches_from(words(&plain)).err()?;
    match error.kind() {
        ErrorKind::UnknownArgument
        | ErrorKind::InvalidSubcommand
        | ErrorKind::ArgumentConflict
        | ErrorKind::TooManyValues => Some(error.to_string().lines().next()?.to_owned()),
        // A placeholder such as NAME=NUMBER, a missing argument of a command that a text only names, or help.
        _ => None,
    }
}

/// The command lines of the program in a page: in blocks for a shell, indented blocks and inline code.
fn command_lines(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut continued = String::new();
    for line in lines(text) {
        match line.block {
            Some("sh" | "console" | "yaml") => {
                continued.push_str(line.text.trim_end_matches('\\').trim_start());
                if line.text.ends_with('\\') {
                    continue;
                }
                let whole = std::mem::take(&mut continued);
                for part in whole.split('|').map(|it| it.trim_start().trim_start_matches("$ ")) {
                    found.extend(
                        part.starts_with("turnwright ").then(|| (line.number, part.to_owned())),
                    );
                }
            }
            Some(_) => {}
            None if line.text.starts_with("    turnwright ") => {
                // A description follows after two spaces.
                let command = line.text.trim_start().split("  ").next().unwrap();
                found.push((line.number, command.to_owned()));
            }
            None => {
                let code = line.text.split('`').skip(1).step_by(2);
                let commands = code.filter(|it| it.starts_with("turnwright "));
                found.extend(commands.map(|it| (line.number, it.to_owned())));
            }
        }
    }
    found
}

#[test]
fn every_command_line_is_understood() {
    assert_eq!(words("a 'b c' \"d\"e # f"), ["a", "b c", "de"]);
    assert!(misunderstood("turnwright sesions list").is_some());
    assert!(misunderstood("turnwright sessions list --al").is_some());
    let (mut wrong, mut seen) = (Vec::new(), 0);
    let for_users =
        |it: &&PathBuf| !it.ends_with("CHANGELOG.md") && !it.ends_with("ARCHITECTURE.md");
    for page in pages().iter().filter(for_users) {
        for (number, line) in command_lines(&read(page)) {
            seen += 1;
            // There is no sandbox on Windows, so the program has no such subcommand there.
            if cfg!(windows) && line.starts_with("turnwright sandbox") {
                continue;
            }
            if let Some(why) = misunderstood(&line) {
                wrong.push(format!("{}:{number}: {line}: {why}", name(page)));
            }
        }
    }
    check("command lines that the program does not understand", &wrong);
    assert!(seen > 60, "only {seen} command lines were found");
}

#[test]
fn every_variable_of_the_documentation_is_read() {
    let source: String =
        ["src", "crates", "tests/real", "tests/stories", "release", "examples", "benches"]
            .iter()
            .flat_map(|it| ["rs", "py"].map(|extension| files_below(&root().join(it), extension)))
            .flatten()
            .map(|it| read(&it))
            .collect();
    let mut wrong = Vec::new();
    for page in pages() {
        for word in read(&page).split(|it: char| !it.is_ascii_uppercase() && it != '_') {
            if word.starts_with("TURNWRIGHT_") && !source.contains(word) {
                wrong.push(format!("{}: {word}", name(&page)));
            }
        }
    }
    check("variables that nothing reads", &wrong);
}

/// What is in italics in the first column.
#[test]
fn troubleshooting_quotes_what_the_program_says() {
    let source: String = ["src", "crates"]
        .iter()
        .flat_map(|it| files_below(&root().join(it), "rs"))
        .map(|it| read(&it))
        .collect();
    // A string may be broken with a backslash, before which its line ends.
    let parts: Vec<_> = source.split("\\\n").map(|it| it.trim_start_matches(' ')).collect();
    let source = parts.concat();
    let page = read(&root().join("docs/troubleshooting.md"));
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for line in page.lines().filter_map(|it| it.strip_prefix("| ")) {
        let cell = line.split(" | ").next().unwrap();
        for quoted in cell.split('*').skip(1).step_by(2) {
            seen += 1;
            if !source.contains(quoted) {
                wrong.push(quoted.to_owned());
            }
        }
    }
    check("messages that the program does not have", &wrong);
    assert!(seen > 10, "only {seen} messages were found");
}

/// The Chinese pages, and the English ones that they translate.
const TRANSLATIONS: [(&str, &str); 2] =
    [("docs/zh/README.md", "README.md"), ("docs/zh/quick-start.md", "docs/quick-start.md")];

/// A translation names the state of its original in its first line. After a change of the original, bring
/// the translation in step and copy the number from the failure of this test.
#[test]
fn the_translations_are_in_step() {
    let blocks = |text: &str| -> Vec<String> {
        lines(text).iter().filter(|it| it.block.is_some()).map(|it| it.text.to_owned()).collect()
    };
    let headings = |text: &str| -> Vec<usize> {
        let depth = |it: &Line<'_>| it.text.len() - it.text.trim_start_matches('#').len();
        lines(text).iter().filter(|it| it.block.is_none()).map(depth).filter(|it| *it > 0).collect()
    };
    for (translation, original) in TRANSLATIONS {
        let (english, chinese) = (read(&root().join(original)), read(&root().join(translation)));
        let state = digest(&SHA256, english.replace('\r', "").as_bytes());
        let digits = |it: &[u8]| u64::from_be_bytes(it.try_into().unwrap()) >> 16;
        let state = format!("{:012x}", digits(&state.as_ref()[..8]));
        assert_eq!(
            chinese.lines().next().unwrap(),
            format!("<!-- {original} {state} -->"),
            "{original} has changed: bring {translation} in step, and renew its first line"
        );
        assert_eq!(blocks(&chinese), blocks(&english), "the code in {translation}");
        assert_eq!(headings(&chinese), headings(&english), "the headings of {translation}");
    }
}

/// `tests/data/field-reports.txt` names a test for each class of faults that was mended.
#[test]
fn each_report_that_was_mended_has_a_test() {
    let sources = ["tests", "src", "crates"].map(|it| files_below(&root().join(it), "rs"));
    let sources: String = sources.iter().flatten().map(|it| read(it)).collect();
    let table = read(&root().join("tests/data/field-reports.txt"));
    for row in table.lines().filter(|row| !row.starts_with('#')) {
        let columns: Vec<_> = row.split(" | ").collect();
        let [_, _, result, test] = columns[..] else { panic!("{row}") };
        assert!(!result.is_empty(), "{row}");
        assert!(
            test == "-" || sources.contains(&format!("fn {test}()")),
            "there is no test {test}"
        );
    }
}

/// `tests/data/permission_promises.txt` names a test for each promise.
#[test]
fn what_the_page_of_permissions_promises_is_shown_by_a_test() {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let page = words(&read(&root().join("docs/permissions.md")));
    let sources = ["tests", "src", "crates"].map(|it| files_below(&root().join(it), "rs"));
    let sources: String = sources.iter().flatten().map(|it| read(it)).collect();
    let table = read(&root().join("tests/data/permission_promises.txt"));
    let rows = table.lines().filter(|it| !it.is_empty() && !it.starts_with('#'));
    for row in rows {
        let (promise, test) = row.split_once(" | ").unwrap_or_else(|| panic!("{row}"));
        assert!(page.contains(promise), "the page does not say: {promise}");
        assert!(sources.contains(&format!("fn {test}()")), "there is no test {test}");
    }
}
