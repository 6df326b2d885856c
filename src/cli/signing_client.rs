//! The program that git runs in the sandbox when it needs a signature.

#![expect(
    clippy::disallowed_methods,
    reason = "it does what the program does whose place it takes"
)]

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write, stderr, stdin, stdout};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use turnwright_config::own_variable;
use turnwright_guard::signing::wire::{
    COMMON_SETTINGS, COUNT_VARIABLE, LINK_PREFIX, MAX_LINE, MAX_PAYLOAD, SOCKET, SignatureFormat,
    SigningAnswer, SigningRequest, TOKEN_VARIABLE,
};
use turnwright_types::error_text::io_error_text;

/// git's request for a signature.
struct Work {
    key: OsString,
    literal_key: Option<String>,
    payload: Vec<u8>,
    /// The file to which the signature is written; `None` for the output.
    target: Option<PathBuf>,
}

/// Runs the signing program if this process was started as one.
pub(super) fn run() -> Option<ExitCode> {
    let mut words = std::env::args_os();
    let link = PathBuf::from(words.next()?);
    let name = link.file_name()?.to_str()?.strip_prefix(LINK_PREFIX)?;
    let format = SignatureFormat::ALL.into_iter().find(|format| format.name() == name)?;
    let arguments: Vec<OsString> = words.collect();
    let work = match work(format, &arguments) {
        // It verifies, or looks for a key: that needs no key of the user.
        Ok(None) => {
            let error = Command::new(usual_program(format)).args(arguments).exec();
            return Some(failed(&error));
        }
        Ok(Some(work)) => work,
        Err(error) => return Some(failed(&error)),
    };
    let socket = link.with_file_name(SOCKET);
    Some(sign(format, &work, &socket).unwrap_or_else(|error| failed(&error)))
}

/// The program that git would run without this one: the one in its settings, or the default.
fn usual_program(format: SignatureFormat) -> String {
    let mut command = Command::new("git");
    command.args(["config", "--null", "--type=path", "--get-regexp", format.settings_pattern()]);
    // The settings after these make git run this program.
    command.env(COUNT_VARIABLE, COMMON_SETTINGS).stdin(Stdio::null()).stderr(Stdio::null());
    let printed = command.output().map(|output| output.stdout).unwrap_or_default();
    let settings = String::from_utf8_lossy(&printed);
    let mut programs =
        settings.split_terminator('\0').filter_map(|setting| setting.split_once('\n'));
    match programs.next_back() {
        Some((_, program)) if !is_link(program) => program.to_owned(),
        _ => format.default_program().to_owned(),
    }
}

/// Returns true for a link to this program, which would start itself for ever.
fn is_link(program: &str) -> bool {
    let name = Path::new(program).file_name().and_then(OsStr::to_str);
    name.is_some_and(|name| name.starts_with(LINK_PREFIX))
}

fn failed(error: &io::Error) -> ExitCode {
    let text = format!("turnwright: nothing was signed: {}", io_error_text(error));
    writeln!(stderr(), "{text}").ok();
    ExitCode::FAILURE
}

/// Reads the arguments; `None` if they are not those of a signature.
fn work(format: SignatureFormat, arguments: &[OsString]) -> io::Result<Option<Work>> {
    let words: Vec<&OsStr> = arguments.iter().map(OsString::as_os_str).collect();
    let is = |at: usize, word: &str| words.get(at).is_some_and(|found| *found == word);
    if format == SignatureFormat::Ssh {
        if !is(0, "-Y") || !is(1, "sign") || !is(2, "-n") || !is(3, "git") || !is(4, "-f") {
            return Ok(None);
        }
        let (Some(key), Some(file)) = (words.get(5), words.last()) else { return Ok(None) };
        let file = Path::new(file);
        let mut target = file.as_os_str().to_owned();
        target.push(".sig");
        return Ok(Some(Work {
            key: (*key).to_owned(),
            literal_key: words
                .contains(&OsStr::new("-U"))
                .then(|| fs::read_to_string(key).ok())
                .flatten(),
            payload: read_bounded(fs::File::open(file)?)?,
            target: Some(target.into()),
        }));
    }
    match words.as_slice() {
        [status, how, key] if *status == "--status-fd=2" && *how == "-bsau" => Ok(Some(Work {
            key: (*key).to_owned(),
            literal_key: None,
            payload: read_bounded(stdin())?,
            target: None,
        })),
        _ => Ok(None),
    }
}

fn read_bounded(source: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(MAX_PAYLOAD as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > MAX_PAYLOAD { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}

fn sign(format: SignatureFormat, work: &Work, socket: &Path) -> io::Result<ExitCode> {
    let mut stream = UnixStream::connect(socket).map_err(|error| {
        io::Error::other(format!("the agent does not answer: {}", io_error_text(&error)))
    })?;
    let request = SigningRequest {
        token: own_variable(TOKEN_VARIABLE).unwrap_or_default(),
        format,
        key: work.key.to_string_lossy().into_owned(),
        literal_key: work.literal_key.clone(),
        payload_bytes: work.payload.len(),
    };
    writeln!(stream, "{}", serde_json::to_string(&request)?)?;
    stream.write_all(&work.payload)?;
    let mut line = String::new();
    BufReader::new(stream).take(MAX_LINE).read_line(&mut line)?;
    let answer: SigningAnswer = serde_json::from_str(&line)?;
    stderr().write_all(answer.messages.as_bytes())?;
    let Some(signature) = answer.signature else { return Ok(ExitCode::FAILURE) };
    match &work.target {
        Some(file) => fs::write(file, signature)?,
        None => stdout().write_all(signature.as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}
