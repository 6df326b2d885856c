//! `turnwright trust`: shows what a project's files ask for, and trusts exactly the content shown.

use std::io;
use std::path::Path;

use crate::sessions::project_roots;
use crate::{prompt, write_stdout};
use turnwright_config::Config;
use turnwright_config::effective_policy::{
    PROJECT_FILE, ProjectFile, SERVERS_FILE, is_about_project_files, language_trust, resolve_policy,
};
use turnwright_config::trust::{Fingerprint, TrustStore};
use turnwright_types::effect::{escape_hidden, escape_hidden_line};
use turnwright_types::text;
use turnwright_workspace::real_path;

/// Prints the trusted projects.
pub fn list(trust: &TrustStore) -> io::Result<bool> {
    for record in trust.list() {
        let [project, what, since] =
            [&record.project, &record.what, &record.since].map(|text| escape_hidden_line(text));
        let fingerprint = text::cut(escape_hidden_line(&record.sha256), 32);
        write_stdout(&format!("{project}  {what}  {fingerprint}  {since}\n"))?;
    }
    Ok(true)
}

/// Withdraws the trust in the project in this folder.
pub fn forget(folder: &Path, trust: &TrustStore) -> io::Result<bool> {
    let folder = std::path::absolute(folder)?;
    // A project that no longer exists can be forgotten as well.
    let real = real_path(&folder).unwrap_or(folder);
    let count = trust.forget(&real)?;
    let what = if count == 0 { "It was not trusted." } else { "It is no longer trusted." };
    write_stdout(&format!("{what}\n"))?;
    Ok(true)
}

/// Shows the files of the project in this folder that need trust, and trusts those that the user confirms, or those
/// with this code. Returns true if nothing is left to trust.
pub fn review(
    folder: &Path,
    code: Option<&str>,
    config: &Config,
    trust: &TrustStore,
) -> io::Result<bool> {
    let roots = project_roots(folder)?;
    let real = roots.real_cwd();
    let settings = config.snapshot();
    let mut policy = resolve_policy(&settings, trust, &roots);
    policy.project_files.extend(language_trust(&settings, trust, real));
    let about_files = policy.problems.iter().filter(|problem| is_about_project_files(problem));
    for problem in about_files {
        write_stdout(&format!("! {problem}\n"))?;
    }
    let withheld: Vec<_> = policy.project_files.iter().filter(|file| file.needs_trust()).collect();
    if !withheld.is_empty() {
        return decide_each(code, trust, real, &withheld);
    }
    write_stdout(&match policy.project_files.as_slice() {
        [] => format!("No {PROJECT_FILE} or {SERVERS_FILE} here: nothing to trust.\n"),
        files if files.iter().any(|file| file.is_trusted) => "Already trusted.\n".to_owned(),
        _ => "The project asks for nothing that needs trust.\n".to_owned(),
    })?;
    Ok(true)
}

fn decide_each(
    code: Option<&str>,
    trust: &TrustStore,
    real: &Path,
    files: &[&ProjectFile],
) -> io::Result<bool> {
    let mut is_all = true;
    let mut is_any = false;
    for file in files {
        let fingerprint = Fingerprint::of(file.text.as_bytes());
        let is_yes = match code {
            Some(code) => code.eq_ignore_ascii_case(fingerprint.long_code()),
            None => {
                show(real, file)?;
                confirm(&fingerprint)?
            }
        };
        if is_yes {
            trust.trust(real, file.name, file.text.as_bytes())?;
            write_stdout(&format!("Trusted {} as shown.\n", file.name))?;
        }
        is_all &= is_yes;
        is_any |= is_yes;
    }
    if !is_any {
        write_stdout(match code {
            Some(_) => "CODE does not match the current content. Nothing was trusted.\n",
            None => "Nothing was trusted.\n",
        })?;
    }
    Ok(if code.is_some() { is_any } else { is_all })
}

fn show(real: &Path, file: &ProjectFile) -> io::Result<()> {
    let path = escape_hidden_line(&real.join(file.name).to_string_lossy());
    let wants = match file.full_requests.as_slice() {
        [] => format!("Ignored until trusted: {}.", file.requests.join(", ")),
        lines => format!("Not started until trusted:\n{}", lines.join("\n")),
    };
    write_stdout(&format!("{path}:\n\n{}\n\n{wants}\n", escape_hidden(file.text.trim_end())))
}

/// Asks for confirmation. Accepts an answer only from a terminal: piped input is not a decision.
fn confirm(fingerprint: &Fingerprint) -> io::Result<bool> {
    if !prompt::is_terminal() {
        let code = fingerprint.long_code();
        write_stdout(&format!("To trust exactly this content, add `--yes {code}`.\n"))?;
        return Ok(false);
    }
    prompt::is_confirmed("Trust this? [y/N] ")
}
