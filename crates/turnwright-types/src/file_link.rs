//! Links to files as editors write them: `file://` URIs and paths, with lines and a symbol behind them,
//! such as `file:///ws/a.rs?symbol=main#L10:20`. No I/O.

use crate::text::percent_decoded;

/// A parsed link to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLink {
    /// A path that a tool can open.
    pub path: String,
    /// The symbol that the user has chosen in the file.
    pub symbol: Option<String>,
    /// The first and the last line that the user has chosen, counted from 1.
    pub lines: Option<(u32, u32)>,
}

impl FileLink {
    /// Parses a `file:` URI; `None` if it is something else.
    pub fn from_uri(uri: &str) -> Option<FileLink> {
        let (scheme, rest) = uri.split_once(':')?;
        if !scheme.eq_ignore_ascii_case("file") || !rest.starts_with('/') {
            return None;
        }
        let (rest, symbol, lines) = split_suffix(rest);
        let path = match rest.strip_prefix("//") {
            None => decode(rest),
            Some(rest) => {
                let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                match host {
                    "" | "localhost" => decode(path),
                    // `file://C:/…`: the third slash is missing.
                    drive if drive.as_bytes().get(1) == Some(&b':') => decode(rest),
                    host => format!("//{host}{}", decode(path)),
                }
            }
        };
        let path = match path.as_bytes() {
            [b'/', drive, b':', b'/', ..] if drive.is_ascii_alphabetic() => path[1..].to_owned(),
            _ => path,
        };
        (!path.is_empty()).then_some(FileLink { path, symbol, lines })
    }

    /// Parses an argument that should be a path and is a link; `None` if it is just a path.
    pub fn from_argument(text: &str) -> Option<FileLink> {
        FileLink::from_uri(text).or_else(|| {
            let (path, symbol, lines) = split_suffix(text);
            let is_link = (lines.is_some() || symbol.is_some()) && !path.is_empty();
            is_link.then(|| FileLink { path: path.to_owned(), symbol, lines })
        })
    }

    /// Parses a path with lines as compilers and people write it, such as `a.rs:10:5`, `a.rs:10-20` and
    /// `a.ts(10,5)`; `None` if it is just a path. A file may have such a name.
    pub fn from_location(text: &str) -> Option<FileLink> {
        let text = match text.strip_suffix(')').and_then(|inner| inner.rsplit_once('(')) {
            Some((path, place)) => format!("{path}:{}", place.replace(',', ":")),
            None => text.trim_end_matches(':').to_owned(),
        };
        let (column_start, numbers) = split_numbers(&text)?;
        // The last number is a column if another one precedes it.
        let (end, lines) = split_numbers(&text[..column_start]).unwrap_or((column_start, numbers));
        let path = text[..end].to_owned();
        (end > 0).then_some(FileLink { path, symbol: None, lines: Some(lines) })
    }

    /// The lines as text, such as `10-20`.
    pub fn line_range(&self) -> Option<String> {
        let (first, last) = self.lines?;
        Some(if first == last { first.to_string() } else { format!("{first}-{last}") })
    }
}

/// The place of the last colon, and the lines behind it.
fn split_numbers(text: &str) -> Option<(usize, (u32, u32))> {
    let (path, lines) = text.rsplit_once(':')?;
    Some((path.len(), parse_lines(&format!("L{}", lines.trim_start_matches('L')))?))
}

/// Splits `?symbol=…`, `?column=5` and `#L10:20` off. Anything else is a part of the path: not every client
/// encodes the characters of a file's name.
fn split_suffix(text: &str) -> (&str, Option<String>, Option<(u32, u32)>) {
    let found = text.rsplit_once('#').and_then(|(rest, end)| Some((rest, parse_lines(end)?)));
    let (rest, lines) = found.map_or((text, None), |(rest, lines)| (rest, Some(lines)));
    let column = rest.rsplit_once("?column=").filter(|(_, column)| column.parse::<u32>().is_ok());
    match rest.rsplit_once("?symbol=") {
        Some((path, symbol)) => {
            // Zed writes a blank as `+`, as forms do.
            let name = decode(&symbol.replace('+', " "));
            (path, Some(name).filter(|name| !name.is_empty()), lines)
        }
        None => (column.map_or(rest, |(path, _)| path), None, lines),
    }
}

/// Parses `L10`, `L10:20`, `L10-20`, `L10-L20` and `L10C3-L20C5`.
fn parse_lines(fragment: &str) -> Option<(u32, u32)> {
    let (first, last) = fragment.split_once([':', '-']).unwrap_or((fragment, fragment));
    let first = parse_line(first.strip_prefix('L')?)?;
    let last = parse_line(last.strip_prefix('L').unwrap_or(last))?;
    Some((first, last.max(first)))
}

/// Parses a line, with or without a column.
fn parse_line(text: &str) -> Option<u32> {
    let (line, column) = text.split_once('C').unwrap_or((text, "0"));
    column.parse::<u32>().ok()?;
    line.parse().ok().filter(|line| *line > 0)
}

/// Decodes `%20` and the like. A text that would not be UTF-8 stays as it is.
fn decode(text: &str) -> String {
    String::from_utf8(percent_decoded(text.as_bytes())).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_a_path_with_lines_and_a_symbol() {
        let table = [
            ("file:///ws/my%20notes%C3%A9.md", "/ws/my notesé.md", None, None),
            ("file:///ws/100%.md", "/ws/100%.md", None, None),
            ("file:///ws/%ff", "/ws/%ff", None, None),
            ("file:///ws/a.rs#L10:20", "/ws/a.rs", None, Some((10, 20))),
            ("file:///ws/a.rs#L10-L20", "/ws/a.rs", None, Some((10, 20))),
            ("file:///ws/a.rs#L7", "/ws/a.rs", None, Some((7, 7))),
            ("file:///ws/a.rs#L7C2-L9C4", "/ws/a.rs", None, Some((7, 9))),
            ("file:///ws/a.rs?symbol=f%3Cu8%3E#L1:2", "/ws/a.rs", Some("f<u8>"), Some((1, 2))),
            ("file:///ws/a.rs?symbol=impl+Add#L1", "/ws/a.rs", Some("impl Add"), Some((1, 1))),
            ("file:///ws/a.rs?symbol=operator%2B#L1", "/ws/a.rs", Some("operator+"), Some((1, 1))),
            ("file:///ws/a.rs?column=5#L10:10", "/ws/a.rs", None, Some((10, 10))),
            ("file:///ws/a%23L7", "/ws/a#L7", None, None),
            ("file:///ws/C#/a#b.cs", "/ws/C#/a#b.cs", None, None),
            ("file:///ws/a.rs#L0", "/ws/a.rs#L0", None, None),
            ("file:///C:/Users/x%20y/a.txt", "C:/Users/x y/a.txt", None, None),
            ("file://C:/Users/x%20y/a.txt", "C:/Users/x y/a.txt", None, None),
            (r"file://C:\Users\a.txt#L2", r"C:\Users\a.txt", None, Some((2, 2))),
            ("file://server/share/a.txt", "//server/share/a.txt", None, None),
            ("file://localhost/ws/a.txt", "/ws/a.txt", None, None),
            ("FILE:/ws/a.txt", "/ws/a.txt", None, None),
        ];
        for (uri, path, symbol, lines) in table {
            let symbol = symbol.map(str::to_owned);
            let expected = FileLink { path: path.to_owned(), symbol, lines };
            assert_eq!(FileLink::from_uri(uri), Some(expected.clone()), "{uri}");
            assert_eq!(FileLink::from_argument(uri), Some(expected), "{uri}");
        }
        for uri in
            ["https://h/a%20b#L1", "zed:///agent/x#L1", "file:a", "file://", "a/b.txt", "C:/a"]
        {
            assert_eq!(FileLink::from_uri(uri), None, "{uri}");
        }
    }

    #[test]
    fn a_location_is_a_path_with_lines() {
        for (text, path, lines) in [
            ("src/a.py:2", "src/a.py", (2, 2)),
            ("a.py:2-3", "a.py", (2, 3)),
            ("a.py:L2-L3", "a.py", (2, 3)),
            ("a.py:2:5", "a.py", (2, 2)),
            ("a.py:2:5:", "a.py", (2, 2)),
            ("a.ts(12,5)", "a.ts", (12, 12)),
            ("a.ts(12)", "a.ts", (12, 12)),
            (r"C:\a.py:7", r"C:\a.py", (7, 7)),
        ] {
            let path = path.to_owned();
            let lines = Some(lines);
            let expected = FileLink { path, symbol: None, lines };
            assert_eq!(FileLink::from_location(text), Some(expected), "{text}");
        }
        for path in ["a.py", "a.py:", "a:b", "a:0", ":2", r"C:\a", "notes (old)", "f(x)", "a.py:-1"]
        {
            assert_eq!(FileLink::from_location(path), None, "{path}");
        }
    }

    #[test]
    fn an_argument_is_a_link_only_with_lines_or_a_symbol() {
        let link = FileLink::from_argument("plain.txt#L2:3").unwrap();
        assert_eq!((link.path.as_str(), link.line_range().as_deref()), ("plain.txt", Some("2-3")));
        let link = FileLink::from_argument("src/a%20b.rs?symbol=run").unwrap();
        assert_eq!((link.path.as_str(), link.symbol.as_deref()), ("src/a%20b.rs", Some("run")));
        for path in ["a.txt", "C#/a.cs", "a#b", "#L1", "what?.txt", "what?column=x", "a#Lx"] {
            assert_eq!(FileLink::from_argument(path), None, "{path}");
        }
    }
}
