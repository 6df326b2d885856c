//! The arguments of `apply_patch`, and the files that they name. Models that are trained on it call it in the
//! shell, too: there is no such program, so a command line with a patch stands for the tool of that name.

use std::path::Path;
use std::sync::OnceLock;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::tools::PathArgument;
use crate::tools::arguments::shell_line;
use turnwright_types::text;
use turnwright_types::update::COMMAND_TOOL;
use turnwright_workspace::edit::patch::{self, FilePatch, PatchOp};

const PROGRAMS: [&str; 3] = ["apply_patch", "applypatch", "apply-patch"];
const SHELLS: [&str; 4] = ["bash", "sh", "zsh", "/bin/bash"];
const BEGIN: &str = "*** Begin Patch";
const END: &str = "\n*** End Patch";
/// The deepest nesting of lines for a shell and JSON.
const MAX_DEPTH: usize = 4;
/// The most characters that are shown of commands that are not run.
const MAX_SHOWN_CHARS: usize = 200;

/// Change files by a patch: `*** Begin Patch`, then for each file `*** Update File: PATH` (or Add,
/// Delete) with `@@` hunks, then `*** End Patch`. All files or none.
#[derive(Debug, Deserialize, JsonSchema)]
pub(in crate::tools) struct ApplyPatch {
    /// The whole patch
    #[serde(alias = "input")]
    patch: String,
    // Not in the schema: a command line that stands for a patch has one.
    #[serde(default)]
    #[schemars(skip)]
    workdir: String,
    /// The rest of a command line that stands for a patch, which is not run.
    #[serde(default)]
    #[schemars(skip)]
    pub(super) left_out: String,
    /// The files of the patch, parsed once for each call.
    #[serde(skip)]
    parsed: OnceLock<Result<Vec<FilePatch>, String>>,
}

impl ApplyPatch {
    /// The files of the patch, or the reason why it cannot be parsed.
    pub(super) fn parsed(&self) -> &Result<Vec<FilePatch>, String> {
        self.parsed.get_or_init(|| {
            let mut files = patch::parse(&self.patch)?;
            for path in files.iter_mut().flat_map(FilePatch::paths_mut) {
                let is_relative = Path::new(path).is_relative() && !path.starts_with('~');
                if !self.workdir.is_empty() && is_relative {
                    *path = format!("{}/{path}", self.workdir);
                }
            }
            Ok(files)
        })
    }

    /// The files of the patch; none if it cannot be parsed.
    pub(super) fn files(&self) -> &[FilePatch] {
        self.parsed().as_deref().unwrap_or_default()
    }

    pub(super) fn paths(&mut self) -> Vec<PathArgument<'_>> {
        self.parsed();
        let mut all = Vec::new();
        for file in self.parsed.get_mut().into_iter().flatten().flatten() {
            let mut may_be_new = matches!(file.change, PatchOp::Add { .. });
            for text in file.paths_mut() {
                all.push(PathArgument { text, may_be_new });
                // The second one is where the file goes.
                may_be_new = true;
            }
        }
        all
    }
}

/// The arguments of `apply_patch`, if a call of this tool only stands for it. It understands `arguments` as they are.
pub(crate) fn patch_call(tool: &str, arguments: &Value) -> Option<Value> {
    let command = arguments.get("command").filter(|_| tool == COMMAND_TOOL)?;
    let ApplyPatch { patch, workdir: folder, left_out, .. } = patch_in(command, MAX_DEPTH)?;
    let named = arguments.get("workdir").and_then(Value::as_str);
    let workdir = join(named.unwrap_or_default().trim(), &folder);
    Some(json!({ "patch": patch, "workdir": workdir, "left_out": left_out }))
}

fn patch_in(command: &Value, depth: usize) -> Option<ApplyPatch> {
    match command {
        _ if depth == 0 => None,
        Value::String(line) if line.contains(BEGIN) => match serde_json::from_str(line) {
            Ok(inner @ (Value::Array(_) | Value::Object(_))) => patch_in(&inner, depth - 1),
            _ => patch_in_line(line, depth),
        },
        Value::Object(fields) => patch_in(fields.get("command")?, depth - 1),
        Value::Array(words) => {
            let words: Vec<_> = words.iter().map(Value::as_str).collect::<Option<_>>()?;
            patch_in_line(&shell_line(&words), depth)
        }
        _ => None,
    }
}

/// The patch of a line, with the folder that the line changes to before, and its other commands.
fn patch_in_line(line: &str, depth: usize) -> Option<ApplyPatch> {
    if let [shell, flags, script] = *line.trim().splitn(3, ' ').collect::<Vec<_>>()
        && SHELLS.contains(&shell)
        && flags.starts_with('-')
    {
        let quote = script.chars().next().filter(|quote| ['"', '\''].contains(quote))?;
        let script = script.trim().strip_prefix(quote)?.strip_suffix(quote)?;
        return patch_in(&unescaped(script, quote).into(), depth - 1);
    }
    let begin = line.find(BEGIN)?;
    let end = begin + line[begin..].find(END)? + END.len();
    let head = &line[..begin];
    let rest = line[end..].trim_start();
    let mut patch = line[begin..end].to_owned();
    let (head, after) =
        if let Some(quote) = head.chars().next_back().filter(|quote| "'\"".contains(*quote)) {
            patch = unescaped(&patch, quote);
            (head.trim_end_matches([quote, ' ', '<']), rest.strip_prefix(quote)?.to_owned())
        } else {
            around_document(head, rest, &mut patch)?
        };
    let mut before = statements(head);
    let program = before.pop()?;
    let mut others = statements(&after);
    let is_piped = program == "cat" || program.starts_with("echo") || program.starts_with("printf");
    if is_piped {
        let target = others.first()?.strip_prefix('|')?.trim();
        PROGRAMS.contains(&target).then(|| others.remove(0))?;
    } else if !PROGRAMS.contains(&program) {
        return None;
    }
    let mut workdir = String::new();
    for statement in before {
        let (program, target) = statement.split_once(' ').unwrap_or((statement, ""));
        let target = target.trim();
        match program {
            "cd" => workdir = join(&workdir, plain_folder(target)?),
            // The patch makes the folders of its files.
            "mkdir"
                if patch
                    .contains(&format!(": {}/", unquoted(target.trim_start_matches("-p ")))) => {}
            "mkdir" => others.push(statement),
            "set" => {}
            _ => return None,
        }
    }
    let left_out = text::cut(others.join("; "), MAX_SHOWN_CHARS);
    Some(ApplyPatch { patch, workdir, left_out, parsed: OnceLock::new() })
}

/// Splits off the parts of a line before and after its here-document. The patch becomes the text that the shell
/// would pass on.
fn around_document<'a>(head: &'a str, rest: &str, patch: &mut String) -> Option<(&'a str, String)> {
    let (head, opening) = head.strip_suffix('\n')?.rsplit_once("<<")?;
    let opening = opening.trim_start_matches(['-', ' ']);
    if !opening.starts_with(['\'', '"', '\\']) {
        *patch = without_escapes(patch, "$`\\");
    }
    let opening = opening.trim_start_matches(['\'', '"', '\\']);
    let behind = opening.trim_start_matches(|c: char| c.is_alphanumeric() || "_-.".contains(c));
    let delimiter = &opening[..opening.len() - behind.len()];
    let after = rest.strip_prefix(delimiter).filter(|_| !delimiter.is_empty())?;
    let opening = behind.trim_start_matches(['\'', '"']);
    match head.trim_end().strip_suffix("\"$(cat") {
        Some(head) => Some((head, after.trim_start().strip_prefix(")\"")?.to_owned())),
        None => Some((head, format!("{opening}\n{after}"))),
    }
}

/// The folder of `cd`; `None` if only a shell could tell.
fn plain_folder(target: &str) -> Option<&str> {
    let (folder, otherwise) = target.split_once("||").unwrap_or((target, ""));
    let leaves = otherwise.is_empty() || otherwise.trim_start().starts_with(['e', 'r']);
    let folder = folder.trim_end();
    let plain = unquoted(folder);
    let is_plain = !plain.contains(['$', '`', '*', '?', '[', '|', '&', '<', '>', '#', '\\'])
        && (plain.len() < folder.len() || !plain.contains(' '));
    (leaves && is_plain).then_some(plain)
}

fn unquoted(word: &str) -> &str {
    word.trim_matches(['\'', '"'])
}

fn statements(text: &str) -> Vec<&str> {
    let parts = text.split(['\n', ';']).flat_map(|line| line.split("&&"));
    parts.map(str::trim).filter(|part| !part.is_empty() && *part != "2>&1").collect()
}

fn join(folder: &str, path: &str) -> String {
    match (folder, path) {
        ("" | ".", _) => path.to_owned(),
        (_, "") => folder.to_owned(),
        _ if path.starts_with(['/', '~']) => path.to_owned(),
        _ => format!("{folder}/{path}"),
    }
}

/// The text between quotes as a shell passes it on.
fn unescaped(text: &str, quote: char) -> String {
    if quote == '\'' {
        return text.replace("'\\''", "'");
    }
    without_escapes(text, "\"$`\\")
}

/// Removes the backslashes before these characters.
fn without_escapes(text: &str, escapable: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        let escaped = chars.next_if(|next| char == '\\' && escapable.contains(*next));
        plain.push(escaped.unwrap_or(char));
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str =
        "*** Begin Patch\n*** Update File: a.txt\n@@\n-it's \"$x\"\n+`b` \\n\n*** End Patch";

    fn found(command: &Value) -> Option<[String; 3]> {
        let call = patch_call(COMMAND_TOOL, &json!({ "command": command }))?;
        Some(["patch", "workdir", "left_out"].map(|key| call[key].as_str().unwrap().to_owned()))
    }

    #[test]
    fn a_line_that_applies_a_patch_stands_for_the_tool() {
        let single = PATCH.replace('\'', "'\\''");
        let double = PATCH.replace('\\', "\\\\").replace('"', "\\\"");
        let double = double.replace('$', "\\$").replace('`', "\\`");
        let in_document = PATCH.replace('$', "\\$").replace('`', "\\`");
        let document = |end: &str| format!("apply_patch <<'EOF'\n{PATCH}\nEOF{end}");
        for (line, folder, rest) in [
            (document(""), "", ""),
            (document("\n"), "", ""),
            (format!("apply_patch << EOF\n{PATCH}\nEOF\n"), "", ""),
            (format!("applypatch <<\"PATCH\"\n{PATCH}\nPATCH"), "", ""),
            (format!("apply_patch <<-'E' 2>&1\n{PATCH}\n\tE\n"), "", ""),
            (format!("apply_patch <<'PATCH-1.x'\n{PATCH}\nPATCH-1.x\n"), "", ""),
            (format!("cd sub/x && {}", document("")), "sub/x", ""),
            (format!("cd 'a b'; cd c\n{}", document("")), "a b/c", ""),
            (format!("set -e\nmkdir -p sub && cd /ws && {}", document("")), "/ws", "mkdir -p sub"),
            (format!("cd sub || exit 1\n{}", document("")), "sub", ""),
            (format!("apply_patch <<EOF\n{in_document}\nEOF"), "", ""),
            (format!("apply_patch <<'EOF' && cargo test -q\n{PATCH}\nEOF\n"), "", "cargo test -q"),
            (document("\ncargo test && git diff\n"), "", "cargo test; git diff"),
            (format!("cat <<'EOF' | apply_patch\n{PATCH}\nEOF"), "", ""),
            (format!("apply_patch '{single}'"), "", ""),
            (format!("apply_patch \"{double}\""), "", ""),
            (format!("apply_patch <<< '{single}'"), "", ""),
            (format!("echo '{single}' | apply_patch"), "", ""),
            (format!("apply_patch \"$(cat <<'EOF'\n{PATCH}\nEOF\n)\""), "", ""),
            (format!("bash -lc 'cd sub && {}'", document("").replace('\'', "'\\''")), "sub", ""),
        ] {
            let expected = Some([PATCH, folder, rest].map(str::to_owned));
            assert_eq!(found(&line.as_str().into()), expected, "{line}");
        }
        for command in [
            json!(["apply_patch", PATCH]),
            json!(["bash", "-lc", document("")]),
            json!(["/bin/bash", "-c", document("")]),
            json!({ "command": ["apply_patch", PATCH] }),
            json!(json!(["apply_patch", PATCH]).to_string()),
            json!(json!({ "command": ["bash", "-lc", document("")] }).to_string()),
        ] {
            let expected = Some([PATCH, "", ""].map(str::to_owned));
            assert_eq!(found(&command), expected, "{command}");
        }
        let made = format!("mkdir -p new && {}", document("").replace("a.txt", "new/a.txt"));
        assert_eq!(found(&made.into()).unwrap()[2], "");
        let call = json!({ "command": format!("cd x && {}", document("")), "workdir": "w" });
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
            "cd a 2>/dev/null; apply_patch <<'EOF'\n*** Begin Patch\n*** End Patch\nEOF",
            "cd a || cd b\napply_patch <<'EOF'\n*** Begin Patch\n*** End Patch\nEOF",
            "cd a b\napply_patch <<'EOF'\n*** Begin Patch\n*** End Patch\nEOF",
            "rm -rf x && apply_patch <<'EOF'\n*** Begin Patch\n*** End Patch\nEOF",
            "apply_patch <<'EOF'\n*** Begin Patch\n*** End Patch\n",
            "grep '*** Begin Patch' a",
        ] {
            assert_eq!(found(&line.into()), None, "{line}");
        }
    }
}
