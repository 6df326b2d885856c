//! The content of the prompt: the text, and the files that the user attaches.

use std::fs::File;
use std::io::{self, BufRead, Read, stdin};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use url::Url;

use crate::prompt::{is_terminal, say};
use turnwright_config::with_home;
use turnwright_types::bounded_read::read_at_most;
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::error_text::io_error_text;
use turnwright_types::text::format_bytes;
use turnwright_workspace::files::{decode_head, is_pdf, picture_mime};

/// The name that stands for stdin.
pub(super) const STDIN: &str = "-";

/// The maximum size of a prompt or of an attached file, in bytes. A line of the protocol may have 64 MiB.
const MAX_BYTES: u64 = 8 * 1024 * 1024;
/// The maximum size of a text that is attached as a whole, in bytes. For a longer one, the model gets its name.
const MAX_EMBEDDED_BYTES: usize = 256 * 1024;

/// How long to wait for the beginning of a pipe beside a prompt. A program that starts this one may leave a
/// pipe open into which it never writes.
const PIPE_PATIENCE: Duration = Duration::from_secs(5);

/// Reads stdin to its end.
///
/// # Errors
/// If it cannot be read or is too long; in words.
pub(super) fn read_stdin() -> Result<String, String> {
    let bytes = wait_for_end(|| read_all(stdin().lock())).map_err(|error| stdin_error(&error))?;
    let text = decode_head(&bytes, false);
    Ok(text.unwrap_or_else(|| String::from_utf8_lossy(&bytes).into_owned()))
}

/// Waits for the end of stdin. If that takes long, the user is told so.
fn wait_for_end<T>(wait: impl FnOnce() -> T) -> T {
    let (_waiting, ended) = mpsc::channel::<()>();
    let telling = thread::Builder::new().spawn(move || {
        let waited = ended.recv_timeout(PIPE_PATIENCE);
        if waited == Err(mpsc::RecvTimeoutError::Timeout) && !is_terminal() {
            say("Reading stdin until it ends …\n").ok();
        }
    });
    telling.ok();
    wait()
}

fn stdin_error(error: &io::Error) -> String {
    format!("stdin: {}", io_error_text(error))
}

/// Attaches what stdin has beside a prompt. Returns what the user is told about it.
///
/// # Errors
/// If it cannot be read or is too long; in words.
pub(super) fn attach_piped(blocks: &mut Vec<Value>) -> Result<Option<String>, String> {
    let (begun, beginning) = mpsc::channel();
    let thread = thread::Builder::new().spawn(move || {
        let mut input = stdin().lock();
        let first = input.fill_buf().map(|bytes| !bytes.is_empty());
        begun.send(()).ok();
        if first.unwrap_or(false) { read_all(input) } else { Ok(Vec::new()) }
    });
    let reading = thread.map_err(|error| stdin_error(&error))?;
    if beginning.recv_timeout(PIPE_PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
        let note = "Nothing has come from stdin, so it was not attached. `--file -` waits for it.";
        return Ok(Some(note.to_owned()));
    }
    let read = wait_for_end(|| reading.join()).unwrap_or_else(|_| Ok(Vec::new()));
    let bytes = read.map_err(|error| stdin_error(&error))?;
    let length = format_bytes(bytes.len() as u64);
    if bytes.is_empty() {
        return Ok(None);
    }
    let block = piped_block("stdin:", &bytes);
    Ok(Some(match block {
        Some(block) => {
            blocks.push(block);
            format!("Attached: stdin ({length})")
        }
        None => format!("stdin is no text ({length}), and was not attached."),
    }))
}

/// The block of a picture or text from a pipe; `None` for anything else.
fn piped_block(uri: &str, bytes: &[u8]) -> Option<Value> {
    if let Some(mime) = picture_mime(bytes) {
        return Some(json!({ "type": "image", "mimeType": mime, "data": BASE64.encode(bytes) }));
    }
    let text = decode_head(bytes, false)?;
    Some(json!({ "type": "resource", "resource": { "uri": uri, "text": text } }))
}

/// Builds the prompt of a text and files; `-` is stdin.
///
/// # Errors
/// If a file cannot be attached; in words.
pub(super) fn prompt_blocks(text: &str, files: &[String]) -> Result<Vec<Value>, String> {
    let mut blocks = vec![json!({ "type": "text", "text": text })];
    for name in files {
        let block = if name == STDIN {
            let bytes =
                wait_for_end(|| read_all(stdin().lock())).map_err(|error| stdin_error(&error))?;
            piped_block("stdin:", &bytes).ok_or("stdin is no text, and cannot be attached")?
        } else {
            attachment(&with_home(name.into())).map_err(|error| {
                format!("--file {}: {}", escape_hidden_line(name), io_error_text(&error))
            })?
        };
        blocks.push(block);
    }
    Ok(blocks)
}

/// The names of the files of which the model gets nothing but the name.
pub(super) fn linked_names(blocks: &[Value]) -> impl Iterator<Item = &str> {
    blocks
        .iter()
        .filter(|block| block["type"] == "resource_link")
        .filter_map(|block| block["name"].as_str())
}

/// Attaches a file. Texts and pictures are attached as a whole. For anything else, such as a folder, the model
/// gets the name, and reads with its tools what it needs.
fn attachment(path: &Path) -> io::Result<Value> {
    if is_pipe(path) {
        // It has no place to which the model could go.
        let bytes = read_all(File::open(path)?)?;
        let block = piped_block(&format!("pipe:{}", path.display()), &bytes);
        return block.ok_or_else(|| io::Error::other("it is no text, and cannot be attached"));
    }
    let path = turnwright_workspace::real_path(path)?;
    let uri = Url::from_file_path(&path).map_err(|()| io::Error::other("it has no URI"))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let link = json!({ "type": "resource_link", "name": name, "uri": uri.as_str() });
    if !path.is_file() {
        return Ok(link);
    }
    let bytes = match read_all(File::open(&path)?) {
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => return Ok(link),
        bytes => bytes?,
    };
    if let Some(mime) = picture_mime(&bytes) {
        let data = BASE64.encode(&bytes);
        return Ok(json!({ "type": "image", "mimeType": mime, "data": data, "uri": uri.as_str() }));
    }
    match decode_head(&bytes, false) {
        Some(text) if text.len() <= MAX_EMBEDDED_BYTES && !is_pdf(&bytes) => {
            Ok(json!({ "type": "resource", "resource": { "uri": uri.as_str(), "text": text } }))
        }
        _ => Ok(link),
    }
}

/// Returns true for a pipe, such as that of a shell's `<(git diff)`.
#[cfg(unix)]
fn is_pipe(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    path.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo())
}

#[cfg(not(unix))]
fn is_pipe(_path: &Path) -> bool {
    false
}

fn read_all(source: impl Read) -> io::Result<Vec<u8>> {
    read_at_most(source, MAX_BYTES)?
        .ok_or_else(|| io::Error::new(io::ErrorKind::FileTooLarge, "longer than 8 MiB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_attached_as_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            io::Write::write_all(&mut File::create(&path).unwrap(), bytes).unwrap();
            path.to_string_lossy().into_owned()
        };
        let files = [
            file("a b.txt", b"text"),
            file("a.png", b"\x89PNG\r\n\x1a\n0123"),
            file("a.bin", b"\0\xff"),
            file("gbk.txt", b"\xc4\xe3\xba\xc3\xa3\xac\xca\xc0\xbd\xe7"),
            file("wide.txt", b"\xff\xfew\0i\0"),
            file("long.txt", &vec![b'x'; MAX_EMBEDDED_BYTES + 1]),
            folder.path().to_string_lossy().into_owned(),
            file("a.pdf", b"%PDF-1.7\nendobj"),
            file("pdf.txt", b"%PDF- begins a PDF"),
        ];
        let blocks = prompt_blocks("Look", &files).unwrap();
        let kinds: Vec<_> = blocks.iter().map(|block| block["type"].as_str().unwrap()).collect();
        let expected = [
            "text",
            "resource",
            "image",
            "resource_link",
            "resource",
            "resource",
            "resource_link",
            "resource_link",
            "resource_link",
            "resource",
        ];
        assert_eq!(kinds, expected);
        assert_eq!(blocks[4]["resource"]["text"], "你好，世界");
        assert_eq!(blocks[5]["resource"]["text"], "wi");
        assert_eq!(blocks[9]["resource"]["text"], "%PDF- begins a PDF");
        assert_eq!(piped_block("stdin:", b"\xef\xbb\xbfx").unwrap()["resource"]["text"], "x");
        assert_eq!(piped_block("stdin:", b"\x00\xffx"), None);
        assert_eq!(linked_names(&blocks).take(2).collect::<Vec<_>>(), ["a.bin", "long.txt"]);
        assert!(blocks[1]["resource"]["uri"].as_str().unwrap().ends_with("/a%20b.txt"));
        assert_eq!(blocks[1]["resource"]["text"], "text");
        let missing = prompt_blocks("Look", &["no\u{1b}such".to_owned()]).unwrap_err();
        assert!(missing.starts_with("--file no\\u{1b}such: "), "{missing}");
    }
}
