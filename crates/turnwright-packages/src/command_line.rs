//! Shell completions and manual pages, from the command line's own definition.

use std::io;

use clap_complete::Shell;

use crate::archive::{Entry, FILE};
use crate::release::{NAME, VERSION};

/// A shell, and where its completions are in a package, below `/usr/share`.
const SHELLS: [(Shell, &str); 4] = [
    (Shell::Bash, "bash-completion/completions/turnwright"),
    (Shell::Zsh, "zsh/vendor-completions/_turnwright"),
    (Shell::Fish, "fish/vendor_completions.d/turnwright.fish"),
    (Shell::PowerShell, "powershell/turnwright.ps1"),
];

/// The completions for each shell, at their places below `/usr/share`.
pub(crate) fn completions() -> Vec<Entry> {
    let mut entries = Vec::new();
    for (shell, path) in SHELLS {
        let mut text = Vec::new();
        let mut command = turnwright::internals::command_line();
        clap_complete::generate(shell, &mut command, "turnwright", &mut text);
        if shell == Shell::Fish {
            text.extend(fish_positional_values(&command).bytes());
        }
        entries.push(Entry::new(path, FILE, text));
    }
    entries
}

/// Completes what a positional argument of a subcommand may be, which `clap_complete` leaves out for fish.
fn fish_positional_values(command: &clap::Command) -> String {
    let mut lines = String::new();
    for outer in command.get_subcommands() {
        let using = format!("__fish_turnwright_using_subcommand {}", outer.get_name());
        let inner = outer
            .get_subcommands()
            .map(|it| (format!("{using}; and __fish_seen_subcommand_from {}", it.get_name()), it));
        for (condition, subcommand) in inner.chain([(using.clone(), outer)]) {
            let values = subcommand.get_positionals().flat_map(clap::Arg::get_possible_values);
            let names: Vec<_> =
                values.filter(|it| !it.is_hide_set()).map(|it| it.get_name().to_owned()).collect();
            if !names.is_empty() {
                let names = names.join(" ");
                lines += &format!("complete -c turnwright -n \"{condition}\" -f -a \"{names}\"\n");
            }
        }
    }
    lines
}

/// True for the one of [`completions`] that is for PowerShell, which has no common place for them.
pub(crate) fn is_powershell(entry: &Entry) -> bool {
    SHELLS.iter().any(|it| it.0 == Shell::PowerShell && it.1 == entry.path)
}

/// The manual page of the program and of each subcommand, at their places below `/usr/share`.
pub(crate) fn manual() -> io::Result<Vec<Entry>> {
    let mut command = turnwright::internals::command_line();
    command.build();
    let mut pages = vec![(String::from("turnwright"), command.clone())];
    let visible =
        command.get_subcommands().filter(|it| !it.is_hide_set() && it.get_name() != "help");
    pages.extend(visible.map(|it| (format!("turnwright-{}", it.get_name()), it.clone())));
    let page = |(name, command): (String, clap::Command)| {
        let mut text = Vec::new();
        let source = format!("{NAME} {VERSION}");
        // No date, so that a build made again has the same bytes. An empty argument would be left out, and
        // the next one taken for the date.
        let page = clap_mangen::Man::new(command).date(" ").source(source);
        page.manual("Manual of turnwright").render(&mut text)?;
        Ok(Entry::new(format!("man/man1/{name}.1"), FILE, text))
    };
    pages.into_iter().map(page).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_visible_subcommand_is_completed_and_has_a_page() {
        let pages: Vec<_> = manual().unwrap();
        let of_unix = cfg!(unix).then_some("turnwright-sandbox");
        for name in
            ["turnwright", "turnwright-login", "turnwright-doctor"].into_iter().chain(of_unix)
        {
            let page = pages.iter().find(|it| it.path == format!("man/man1/{name}.1"));
            let text = String::from_utf8_lossy(&page.unwrap().bytes).into_owned();
            let heading = format!(".TH {name} 1 \" \" \"{NAME} {VERSION}\" ");
            assert!(text.contains(&heading) && text.contains("SYNOPSIS"), "{text}");
        }
        assert!(!pages.iter().any(|it| it.path.contains("probe") || it.path.contains("launcher")));
        for entry in completions() {
            let text = String::from_utf8_lossy(&entry.bytes).into_owned();
            assert!(text.contains("mcp-server") && text.contains("doctor"), "{}", entry.path);
            // A value of the argument of `config editor`.
            assert!(text.contains("neovim") || is_powershell(&entry), "{}", entry.path);
        }
    }
}
