//! Finds the patch in a command line by which models that are trained on `apply_patch` call it in the shell.
//! There is no such program, so the line stands for the tool of that name.

use serde_json::{Value, json};

use turnwright_types::update::COMMAND_TOOL;

const PROGRAMS: [&str; 3] = ["apply_patch", "applypatch", "apply-patch"];
const SHELLS: [&str; 4] = ["bash", "sh", "zsh", "dash"];
const BEGIN: &str = "*** Begin Patch";
/// How deeply lines for a shell and JSON may be nested.
const MAX_DEPTH: usize = 3;

/// A line that applies a patch.
#[derive(Debug, Default, PartialEq, Eq)]
struct PatchCommand {
    patch: String,
    /// Where the line goes before.
    folder: String,
    /// What else it does.
    others: Vec<String>,
}

/// One command of a line.
#[derive(Debug, Default)]
struct LineCommand<'a> {
    source: &'a str,
    words: Vec<String>,
    /// Its here-document or here-string.
    input: Option<String>,
    /// Whether its output goes to the next command.
    is_piped: bool,
}

/// The arguments of `apply_patch`, if a call of this tool only stands for it.
pub(crate) fn patch_call(tool: &str, arguments: &Value) -> Option<Value> {
    if tool != COMMAND_TOOL {
        return None;
    }
    let texts = |names: &[&str]| names.iter().find_map(|name| arguments.get(name)).cloned();
    let command = texts(&["command", "cmd", "script", "shell_command"])?;
    let PatchCommand { patch, folder, others } = patch_in(&command, MAX_DEPTH)?;
    let workdir = texts(&["workdir", "cwd"]);
    let workdir = workdir.as_ref().and_then(Value::as_str).unwrap_or_default();
    let folder = join(workdir.trim(), &folder);
    let others = (!others.is_empty()).then(|| others.join("; "));
    let folder = (!folder.is_empty()).then_some(folder);
    Some(json!({ "patch": patch, "workdir": folder, "left_out": others }))
}

fn patch_in(command: &Value, depth: usize) -> Option<PatchCommand> {
    match command {
        _ if depth == 0 => None,
        Value::String(line) if !line.contains(BEGIN) => None,
        Value::String(line) => match serde_json::from_str(line) {
            Ok(inner @ (Value::Array(_) | Value::Object(_))) => patch_in(&inner, depth - 1),
            _ => patch_in_line(line, depth),
        },
        Value::Object(fields) => patch_in(fields.get("command").or(fields.get("cmd"))?, depth - 1),
        Value::Array(words) => {
            let words: Option<Vec<_>> =
                words.iter().map(|word| word.as_str().map(str::to_owned)).collect();
            patch_in_words(&words?, depth)
        }
        _ => None,
    }
}

fn patch_in_words(words: &[String], depth: usize) -> Option<PatchCommand> {
    match words {
        [shell, flags, line]
            if SHELLS.contains(&shell.rsplit('/').next()?)
                && flags.starts_with('-')
                && flags.ends_with('c') =>
        {
            patch_in(&line.as_str().into(), depth - 1)
        }
        [program, patch] if PROGRAMS.contains(&program.as_str()) && patch.contains(BEGIN) => {
            Some(PatchCommand { patch: patch.clone(), ..PatchCommand::default() })
        }
        _ => None,
    }
}

fn patch_in_line(line: &str, depth: usize) -> Option<PatchCommand> {
    let mut found: Option<PatchCommand> = None;
    let mut folder = String::new();
    let mut made = Vec::new();
    let mut piped = None;
    for LineCommand { source, words, input, is_piped } in commands(line)? {
        if let Some(found) = &mut found {
            found.others.push(source.to_owned());
            continue;
        }
        let program = words.first().map_or("", String::as_str);
        let input = input.or(piped.take());
        match (program, words.as_slice()) {
            (_, [_]) if PROGRAMS.contains(&program) => {
                let patch = input.filter(|it| it.contains(BEGIN))?;
                found = Some(PatchCommand { patch, ..PatchCommand::default() });
            }
            ("cd" | "pushd", [_, target]) if !target.contains('$') => {
                folder = join(&folder, target)
            }
            ("mkdir", [_, folders @ ..]) => {
                made.extend(folders.iter().filter(|it| !it.starts_with('-')).cloned());
            }
            ("set" | "true" | "pwd", _) => {}
            ("cat", [_]) if is_piped => piped = input,
            ("echo" | "printf", [_, .., text]) if is_piped => piped = Some(text.clone()),
            _ => found = Some(patch_in_words(&words, depth)?),
        }
    }
    let mut found = found?;
    // The patch makes the folders of its files.
    made.retain(|folder| {
        let below = format!("{}/", folder.trim_end_matches('/'));
        !found.patch.lines().any(|line| line.contains(&format!(": {below}")))
    });
    found.others.extend(made.into_iter().map(|folder| format!("mkdir -p {folder}")));
    found.folder = join(&folder, &found.folder);
    Some(found)
}

fn join(folder: &str, path: &str) -> String {
    match (folder, path) {
        ("" | ".", _) => path.to_owned(),
        (_, "") => folder.to_owned(),
        _ if path.starts_with(['/', '~']) => path.to_owned(),
        _ => format!("{}/{path}", folder.trim_end_matches('/')),
    }
}

/// The commands of a line with their words; `None` if it has something that only a shell understands.
fn commands(line: &str) -> Option<Vec<LineCommand<'_>>> {
    let mut all = Vec::new();
    let mut scanner = Scanner { text: line, at: 0, documents: Vec::new() };
    while scanner.at < line.len() {
        let command = scanner.command()?;
        if !command.words.is_empty() {
            all.push(command);
        }
        scanner.read_documents(&mut all)?;
    }
    scanner.documents.is_empty().then_some(all)
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
    /// The delimiters of here-documents whose text has not come yet.
    documents: Vec<String>,
}

impl<'a> Scanner<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn eat(&mut self, expected: &str) -> bool {
        let found = self.rest().starts_with(expected);
        self.at += if found { expected.len() } else { 0 };
        found
    }

    /// Reads a command up to the operator or line end behind it.
    fn command(&mut self) -> Option<LineCommand<'a>> {
        let mut command = LineCommand::default();
        let start = self.at;
        let mut end;
        loop {
            end = self.at;
            while self.eat(" ") || self.eat("\t") || self.eat("\\\n") {}
            if self.eat("||") || self.eat("&&") || self.eat(";") {
                break;
            } else if self.eat("|") {
                command.is_piped = true;
                break;
            } else if self.rest().is_empty() || self.rest().starts_with('\n') {
                break;
            } else if self.eat("<<<") {
                while self.eat(" ") {}
                command.input = Some(self.word()?);
            } else if self.eat("<<") {
                let _ = self.eat("-");
                while self.eat(" ") {}
                let delimiter = self.word()?;
                self.documents.push(delimiter);
            } else if self.eat("2>&1") || self.eat(">&2") || self.eat("2>/dev/null") {
            } else if self.rest().starts_with(['<', '>', '&', '(', ')', '{', '}', '#', '`']) {
                return None;
            } else {
                command.words.push(self.word()?);
            }
        }
        command.source = self.text[start..end].trim();
        Some(command)
    }

    /// Reads the here-documents that begin in the next line, and gives them to their commands.
    fn read_documents(&mut self, all: &mut [LineCommand<'a>]) -> Option<()> {
        if !self.eat("\n") {
            return Some(());
        }
        for delimiter in std::mem::take(&mut self.documents) {
            let text = self.document(&delimiter)?;
            let waiting =
                all.iter_mut().rev().find(|it| it.source.contains("<<") && it.input.is_none());
            waiting?.input = Some(text);
        }
        Some(())
    }

    /// The lines up to the one with the delimiter.
    fn document(&mut self, delimiter: &str) -> Option<String> {
        let start = self.at;
        for line in self.rest().split_inclusive('\n') {
            if line.trim() == delimiter {
                let text = self.text[start..self.at].to_owned();
                // The end of the line ends the command.
                self.at += line.trim_end_matches('\n').len();
                return Some(text);
            }
            self.at += line.len();
        }
        None
    }

    /// Reads a word without its quotes.
    fn word(&mut self) -> Option<String> {
        let mut word = String::new();
        loop {
            if self.eat("'") {
                let (text, _) = self.rest().split_once('\'')?;
                word.push_str(text);
                self.at += text.len() + 1;
            } else if self.eat("$'") {
                self.escaped(&mut word, '\'')?;
            } else if self.eat("\"") {
                self.escaped(&mut word, '"')?;
            } else if self.eat("\\") {
                let next = self.rest().chars().next()?;
                word.push(next);
                self.at += next.len_utf8();
            } else {
                let ends = |it: char| it.is_whitespace() || ";&|<>()'\"\\`".contains(it);
                let plain = self.rest().split(ends).next().unwrap_or_default();
                let plain = plain.split("$'").next().unwrap_or_default();
                if plain.is_empty() {
                    return Some(word);
                }
                word.push_str(plain);
                self.at += plain.len();
            }
        }
    }

    /// Reads to the closing quote. Double quotes may hold `$(cat <<…)`; after `$'` letters stand for control
    /// characters.
    fn escaped(&mut self, word: &mut String, quote: char) -> Option<()> {
        loop {
            let next = self.rest().chars().next()?;
            if quote == '"' && self.eat("$(cat <<") {
                let _ = self.eat("-");
                let delimiter = self.word()?;
                self.eat("\n").then_some(())?;
                word.push_str(&self.document(&delimiter)?);
                while self.eat("\n") || self.eat(" ") {}
                self.eat(")").then_some(())?;
                continue;
            }
            self.at += next.len_utf8();
            match next {
                _ if next == quote => return Some(()),
                '\\' => {
                    let escaped = self.rest().chars().next()?;
                    self.at += escaped.len_utf8();
                    match escaped {
                        'n' if quote == '\'' => word.push('\n'),
                        't' if quote == '\'' => word.push('\t'),
                        '"' | '$' | '`' | '\\' => word.push(escaped),
                        '\'' if quote == '\'' => word.push(escaped),
                        _ => word.extend(['\\', escaped]),
                    }
                }
                _ => word.push(next),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str =
        "*** Begin Patch\n*** Update File: a.txt\n@@\n-it's \"$x\"\n+`b` \\n\n*** End Patch";

    fn found(command: &Value) -> Option<(String, Value, Value)> {
        let call = patch_call(COMMAND_TOOL, &json!({ "command": command }))?;
        let patch = call["patch"].as_str().unwrap().trim().to_owned();
        Some((patch, call["workdir"].clone(), call["left_out"].clone()))
    }

    #[test]
    fn a_line_that_applies_a_patch_stands_for_the_tool() {
        let null = Value::Null;
        let single = PATCH.replace('\'', "'\\''");
        let double = PATCH.replace('\\', "\\\\").replace('"', "\\\"");
        let double = double.replace('$', "\\$").replace('`', "\\`");
        let ansi = PATCH.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n");
        let document = |end: &str| format!("apply_patch <<'EOF'\n{PATCH}\nEOF{end}");
        for (line, folder, rest) in [
            (document(""), "", ""),
            (document("\n"), "", ""),
            (format!("apply_patch << EOF\n{PATCH}\nEOF\n"), "", ""),
            (format!("applypatch <<\"PATCH\"\n{PATCH}\nPATCH"), "", ""),
            (format!("apply_patch <<-'E' 2>&1\n{PATCH}\n\tE\n"), "", ""),
            (format!("cd sub/x && {}", document("")), "sub/x", ""),
            (format!("cd 'a b'; cd c\n{}", document("")), "a b/c", ""),
            (format!("set -e\nmkdir -p sub && cd /ws && {}", document("")), "/ws", "mkdir -p sub"),
            (format!("apply_patch <<'EOF' && cargo test -q\n{PATCH}\nEOF\n"), "", "cargo test -q"),
            (document("\ncargo test && git diff\n"), "", "cargo test; git diff"),
            (format!("cat <<'EOF' | apply_patch\n{PATCH}\nEOF"), "", ""),
            (format!("apply_patch '{single}'"), "", ""),
            (format!("apply_patch \"{double}\""), "", ""),
            (format!("apply_patch $'{ansi}'"), "", ""),
            (format!("apply_patch <<< '{single}'"), "", ""),
            (format!("echo '{single}' | apply_patch"), "", ""),
            (format!("apply_patch \"$(cat <<'EOF'\n{PATCH}\nEOF\n)\""), "", ""),
            (format!("bash -lc 'cd sub && {}'", document("").replace('\'', "'\\''")), "sub", ""),
        ] {
            let folder = if folder.is_empty() { null.clone() } else { folder.into() };
            let rest = if rest.is_empty() { null.clone() } else { rest.into() };
            let expected = Some((PATCH.to_owned(), folder, rest));
            assert_eq!(found(&line.as_str().into()), expected, "{line}");
        }
        for command in [
            json!(["apply_patch", PATCH]),
            json!(["bash", "-lc", document("")]),
            json!(["/bin/sh", "-c", document("")]),
            json!({ "command": ["apply_patch", PATCH] }),
            json!(json!(["apply_patch", PATCH]).to_string()),
            json!(json!({ "command": ["bash", "-lc", document("")] }).to_string()),
        ] {
            let expected = Some((PATCH.to_owned(), null.clone(), null.clone()));
            assert_eq!(found(&command), expected, "{command}");
        }
        let made = format!("mkdir -p new && {}", document("").replace("a.txt", "new/a.txt"));
        assert_eq!(found(&made.into()).unwrap().2, null);
        let call = json!({ "cmd": format!("cd x && {}", document("")), "workdir": "w" });
        assert_eq!(patch_call(COMMAND_TOOL, &call).unwrap()["workdir"], "w/x");
    }

    #[test]
    fn other_lines_stay_commands() {
        for line in [
            "apply_patch",
            "apply_patch < a.patch",
            "apply_patch --help",
            "./apply_patch '*** Begin Patch'",
            "git apply <<'EOF'\n*** Begin Patch\nEOF",
            "cat > a.patch <<'EOF'\n*** Begin Patch\n*** End Patch\nEOF",
            "cd $HOME && apply_patch <<'EOF'\n*** Begin Patch\n*** End Patch\nEOF",
            "rm -rf x && apply_patch <<'EOF'\n*** Begin Patch\n*** End Patch\nEOF",
            "apply_patch <<'EOF'\n*** Begin Patch\n*** End Patch\n",
            "grep '*** Begin Patch' a",
        ] {
            assert_eq!(found(&line.into()), None, "{line}");
        }
    }
}
