//! Patches in the envelope that some models are trained on: `*** Begin Patch`, files, hunks. This
//! file reads them; `place` finds where a hunk belongs.

mod place;

pub use place::{HunkRefusal, apply};

const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const ADD: &str = "*** Add File:";
const DELETE: &str = "*** Delete File:";
const UPDATE: &str = "*** Update File:";
const MOVE: &str = "*** Move to:";
const END_OF_FILE: &str = "*** End of File";

/// The longest patch in bytes.
const LONGEST: usize = 8 * 1024 * 1024;
/// The most files, and the most hunks of all.
const MOST_FILES: usize = 100;
const MOST_HUNKS: usize = 200;

/// What a patch does to one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePatch {
    /// The file.
    pub path: String,
    /// What becomes of it.
    pub change: Change,
}

/// What becomes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is new.
    Add {
        /// What it says.
        text: String,
    },
    /// It goes.
    Delete,
    /// Parts of it change, or its name.
    Update {
        /// Its new name.
        to: Option<String>,
        /// The parts.
        hunks: Vec<Hunk>,
    },
}

/// A change to some lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hunk {
    /// Where it begins in the patch, counted from 1.
    pub line: usize,
    /// Lines that stand somewhere before it, the outermost first.
    pub scopes: Vec<String>,
    /// The lines that are there, each with its end.
    pub old: String,
    /// The lines that are to be there.
    pub new: String,
    /// Whether it is the end of the file.
    pub at_end: bool,
}

/// Reads a patch.
///
/// # Errors
/// What is wrong with it, and in which line.
pub fn parse(text: &str) -> Result<Vec<FilePatch>, String> {
    if text.len() > LONGEST {
        return Err("the patch is longer than 8 MiB".to_owned());
    }
    let mut reader = Reader { lines: text.lines().collect(), at: 0 };
    while reader.peek().is_some_and(|it| it.trim() != BEGIN) {
        reader.at += 1;
    }
    if reader.next().is_none() {
        return Err(format!("line 1: a patch begins with `{BEGIN}`"));
    }
    let mut files: Vec<FilePatch> = Vec::new();
    loop {
        let Some(line) = reader.next() else {
            return Err(
                reader.wrong(&format!("the patch does not end with `{END}`: was it cut off?"))
            );
        };
        if line.trim() == END {
            break;
        }
        if line.trim().is_empty() {
            continue;
        }
        let file = reader.file(line)?;
        if files.iter().any(|it| it.path == file.path) {
            return Err(
                reader.wrong(&format!("{} comes twice: put all its hunks together", file.path))
            );
        }
        files.push(file);
    }
    let hunks = files.iter().map(|it| match &it.change {
        Change::Update { hunks, .. } => hunks.len(),
        Change::Add { .. } | Change::Delete => 0,
    });
    match (files.len(), hunks.sum::<usize>()) {
        (0, _) => Err(reader.wrong("the patch names no file")),
        (MOST_FILES.., _) => Err(format!("more than {MOST_FILES} files: make several patches")),
        (_, MOST_HUNKS..) => Err(format!("more than {MOST_HUNKS} hunks: make several patches")),
        _ => Ok(files),
    }
}

/// Goes through the lines of a patch.
struct Reader<'t> {
    lines: Vec<&'t str>,
    at: usize,
}

impl<'t> Reader<'t> {
    fn peek(&self) -> Option<&'t str> {
        self.lines.get(self.at).copied()
    }

    fn next(&mut self) -> Option<&'t str> {
        let line = self.peek()?;
        self.at += 1;
        Some(line)
    }

    /// An error about the line that was read last.
    fn wrong(&self, what: &str) -> String {
        format!("line {}: {what}", self.at)
    }

    /// The next line of the same file.
    fn line_of_file(&mut self) -> Option<&'t str> {
        let is_next = |it: &&str| it.starts_with("*** ") && it.trim() != END_OF_FILE;
        self.peek().filter(|it| !is_next(it))?;
        self.next()
    }

    fn file(&mut self, header: &str) -> Result<FilePatch, String> {
        let name = |rest: &str| {
            let path = rest.trim().to_owned();
            if path.is_empty() { Err(self.wrong("a path is missing")) } else { Ok(path) }
        };
        if let Some(rest) = header.strip_prefix(ADD) {
            let path = name(rest)?;
            return Ok(FilePatch { path, change: self.addition()? });
        }
        if let Some(rest) = header.strip_prefix(DELETE) {
            return Ok(FilePatch { path: name(rest)?, change: Change::Delete });
        }
        if let Some(rest) = header.strip_prefix(UPDATE) {
            let path = name(rest)?;
            return Ok(FilePatch { path, change: self.update()? });
        }
        Err(self.wrong(&format!(
            "`{}` is none of `{ADD}`, `{UPDATE}`, `{DELETE}`, `{END}`",
            header.chars().take(80).collect::<String>()
        )))
    }

    fn addition(&mut self) -> Result<Change, String> {
        let mut text = String::new();
        while let Some(line) = self.line_of_file() {
            match line.strip_prefix('+') {
                Some(line) => {
                    text.push_str(line);
                    text.push('\n');
                }
                None if line.is_empty() && self.ends_here() => {}
                None => return Err(self.wrong("each line of a new file begins with `+`")),
            }
        }
        Ok(Change::Add { text })
    }

    /// Whether only empty lines follow before the next file.
    fn ends_here(&self) -> bool {
        let next = self.lines[self.at..].iter().find(|it| !it.is_empty());
        next.is_none_or(|it| it.starts_with("*** "))
    }

    fn update(&mut self) -> Result<Change, String> {
        let mut to = None;
        if let Some(rest) = self.peek().and_then(|it| it.strip_prefix(MOVE)) {
            self.at += 1;
            let path = rest.trim();
            if path.is_empty() {
                return Err(self.wrong("a path is missing"));
            }
            to = Some(path.to_owned());
        }
        let mut hunks: Vec<Hunk> = Vec::new();
        let mut hunk = Hunk { line: self.at + 1, ..Hunk::default() };
        while let Some(line) = self.line_of_file() {
            if let Some(scope) = line.strip_prefix("@@") {
                if !hunk.is_empty() {
                    hunks.push(std::mem::take(&mut hunk));
                }
                hunk.line = self.at;
                hunk.scopes.extend(scope_of(scope));
            } else if line.trim() == END_OF_FILE {
                hunk.at_end = true;
            } else if line.is_empty() && self.ends_hunk() {
                // Between hunks it is no line of the file.
            } else {
                self.line_of_hunk(&mut hunk, line)?;
            }
        }
        if !hunk.is_empty() {
            hunks.push(hunk);
        } else if !hunk.scopes.is_empty() {
            return Err(self.wrong("after `@@` no lines to change follow"));
        }
        if hunks.is_empty() && to.is_none() {
            return Err(self.wrong("nothing is to be changed in this file"));
        }
        Ok(Change::Update { to, hunks })
    }

    fn ends_hunk(&self) -> bool {
        let next = self.lines[self.at..].iter().find(|it| !it.is_empty());
        next.is_none_or(|it| it.starts_with("*** ") || it.starts_with("@@"))
    }

    fn line_of_hunk(&self, hunk: &mut Hunk, line: &str) -> Result<(), String> {
        let mut chars = line.chars();
        let sign = chars.next();
        let body = chars.as_str();
        let (is_old, is_new) = match sign {
            Some(' ') | None => (true, true),
            Some('-') => (true, false),
            Some('+') => (false, true),
            // `\ No newline at end of file`: it stays as it is.
            Some('\\') => return Ok(()),
            Some(_) => {
                return Err(self.wrong(
                    "each line of a hunk begins with a space, `-` or `+`; unchanged lines with a \
                     space",
                ));
            }
        };
        for (text, is_there) in [(&mut hunk.old, is_old), (&mut hunk.new, is_new)] {
            if is_there {
                text.push_str(body);
                text.push('\n');
            }
        }
        Ok(())
    }
}

impl Hunk {
    fn is_empty(&self) -> bool {
        self.old.is_empty() && self.new.is_empty()
    }
}

/// What stands behind `@@`. Line numbers, as in a unified diff, are never right.
fn scope_of(rest: &str) -> Option<String> {
    let rest = rest.trim();
    let is_numbers = rest.starts_with('-') && rest[1..].starts_with(|it: char| it.is_ascii_digit());
    let scope = match rest.split_once("@@") {
        Some((_, scope)) if is_numbers => scope,
        _ if is_numbers => "",
        _ => rest.strip_suffix("@@").unwrap_or(rest),
    };
    let scope = scope.trim();
    (!scope.is_empty()).then(|| scope.to_owned())
}
