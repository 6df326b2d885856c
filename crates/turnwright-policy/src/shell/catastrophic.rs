//! Commands that would ruin the whole system. They are never run, whatever the mode and the rules
//! say. The list is short, because a wrong entry cannot be overridden.

use std::path::Path;

use super::args::{Args, is_option, name, operands};
use super::programs::is_in;
use super::{Redirect, Word, known_words};

const FILES: &str = "deletes the system or all of a user's files";
const DISK: &str = "destroys the content of a disk";
const PERMISSIONS: &str = "changes the file permissions of the whole system";
const SHUTDOWN: &str = "shuts down the machine";

/// The home folder, where its path is not known.
pub(super) const HOME: &str = "~";

/// Top-level folders that belong to the system, or to all its users.
const SYSTEM_FOLDERS: &str = "bin boot dev etc home lib lib32 lib64 mnt media opt proc root run sbin \
    srv sys usr var Applications Library System Users Volumes private";

/// `chmod -R`, `chown -R`, `chgrp -R`.
pub(super) fn changes_permissions(words: Args<'_>, folder: Option<&Path>) -> Option<&'static str> {
    let is_recursive = words.iter().any(|it| is_option(&it.text, 'R', "--recursive"));
    let is_system = operands(words).any(|it| is_system(&it.text, folder));
    (is_recursive && is_system).then_some(PERMISSIONS)
}

/// `shutdown`, `reboot` and the like.
pub(super) fn shuts_down(words: Args<'_>, _: Option<&Path>) -> Option<&'static str> {
    (!asks_help(words)).then_some(SHUTDOWN)
}

/// `init 0`.
pub(super) fn ends_run_level(words: Args<'_>, _: Option<&Path>) -> Option<&'static str> {
    let mut operands = operands(words);
    let is_end = operands.next().is_some_and(|it| ["0", "6"].contains(&it.text.as_str()));
    (is_end && operands.next().is_none()).then_some(SHUTDOWN)
}

/// `systemctl poweroff`.
pub(super) fn stops_system(words: Args<'_>, _: Option<&Path>) -> Option<&'static str> {
    let stops = "poweroff reboot halt kexec soft-reboot suspend hibernate";
    let mut operands = operands(words).map(|it| it.text.as_str());
    let isolates = operands.clone().nth(1).and_then(|it| it.strip_suffix(".target"));
    let is_end = operands.next().is_some_and(|it| {
        is_in(stops, it) || it == "isolate" && isolates.is_some_and(|it| is_in(stops, it))
    });
    is_end.then_some(SHUTDOWN)
}

/// Also true for `shutdown -c`, which cancels one.
fn asks_help(words: Args<'_>) -> bool {
    words.first().is_some_and(|it| is_in("--help --version -c", &it.text))
}

pub(super) fn removes_system(words: Args<'_>, folder: Option<&Path>) -> Option<&'static str> {
    let is_recursive = words
        .iter()
        .take_while(|it| it.text != "--")
        .any(|it| is_option(&it.text, 'r', "--recursive") || is_option(&it.text, 'R', ""));
    let is_all = |it: &str| is_system(it, folder) || is_home(it, folder);
    (is_recursive && operands(words).any(|it| is_all(&it.text))).then_some(FILES)
}

pub(super) fn moves_system(words: Args<'_>, folder: Option<&Path>) -> Option<&'static str> {
    let has_target = words.iter().any(|it| is_option(&it.text, 't', "--target-directory"));
    let count = operands(words).count().saturating_sub(1);
    let is_all = |it: &str| is_system(it, folder) || is_home(it, folder);
    let is_moved = operands(words).take(count).any(|it| is_all(&it.text));
    (is_moved && !has_target).then_some(FILES)
}

/// `find / -delete` or `find / -exec rm {} +`, without a test that selects files.
pub(super) fn finds_and_deletes_system(
    words: Args<'_>,
    folder: Option<&Path>,
) -> Option<&'static str> {
    let is_option = |it: &&Word| ["-L", "-H", "-P"].contains(&it.text.as_str());
    let words = &words[words.iter().take_while(is_option).count()..];
    let is_start = |it: &&str| !it.starts_with(['-', '(', '!']);
    let mut starts = words.iter().map(|it| it.text.as_str()).take_while(is_start);
    let all = "-delete -depth -type -xdev -mount -mindepth -maxdepth -print -print0 -ls";
    let selects = |it: &str| it.starts_with('-') && !is_in(all, it);
    let is_all = |it: &str| is_system(it, folder) || is_home(it, folder);
    let exec = words.iter().position(|it| known_words::is_find_exec(&it.text));
    let (tests, started) = words.split_at(exec.unwrap_or(words.len()));
    let removes = started.get(1).is_some_and(|it| is_in("rm shred unlink", name(&it.text)));
    let deletes = removes || tests.iter().any(|it| it.text == "-delete");
    (deletes && starts.any(is_all) && !tests.iter().any(|it| selects(&it.text))).then_some(FILES)
}

/// The first parts of a normalised absolute path, and the number of all of them. A final `*` is
/// dropped: it stands for everything in the folder.
struct PathParts<'a> {
    parts: [&'a str; 3],
    count: usize,
}

/// Normalises a path. `None` if it is relative and the folder is unknown.
fn path_parts<'a>(text: &'a str, folder: Option<&'a Path>) -> Option<PathParts<'a>> {
    let mut path = PathParts { parts: [""; 3], count: 0 };
    if !text.starts_with('/') {
        let folder = folder.filter(|it| it.has_root())?;
        path.push(folder.to_str()?);
    }
    // The root folder by another name.
    let text = text.strip_prefix("/proc/self/root").unwrap_or(text);
    let text =
        text.strip_suffix('*').filter(|it| it.ends_with('/') || it.is_empty()).unwrap_or(text);
    path.push(text);
    Some(path)
}

impl<'a> PathParts<'a> {
    fn push(&mut self, path: &'a str) {
        for part in path.split('/') {
            match part {
                "" | "." => {}
                ".." => self.count = self.count.saturating_sub(1),
                part => {
                    if let Some(slot) = self.parts.get_mut(self.count) {
                        *slot = part;
                    }
                    self.count += 1;
                }
            }
        }
    }
}

/// True for `/` and the folders of the system, for everything in one of them, and for patterns that may
/// stand for one of them.
fn is_system(text: &str, folder: Option<&Path>) -> bool {
    if !text.starts_with('{') {
        return is_system_path(text, folder);
    }
    // Alternatives, maybe with others among them.
    text.split(',').any(|it| is_system_path(it.trim_matches(['{', '}']), folder))
}

fn is_system_path(text: &str, folder: Option<&Path>) -> bool {
    let Some(path) = path_parts(text, folder) else { return false };
    let is_any = |part: &str, names: &str| names.split(' ').any(|it| may_be(part, it));
    match path.count {
        0 => true,
        1 => is_any(path.parts[0], SYSTEM_FOLDERS),
        2 => may_be(path.parts[0], "usr") && is_any(path.parts[1], "bin sbin lib lib64 share"),
        _ => false,
    }
}

/// True for this name and for a pattern with the same beginning and end.
fn may_be(part: &str, name: &str) -> bool {
    let wildcards = ['*', '?', '[', '{'];
    let Some(start) = part.find(wildcards) else { return part == name };
    let end = part.rfind(['*', '?', ']', '}']).map_or("", |it| &part[it + 1..]);
    name.starts_with(&part[..start]) && name.ends_with(end)
}

/// `> /dev/sda`, `> /proc/sysrq-trigger`.
pub(super) fn redirects_to_machine(redirects: &[Redirect]) -> Option<&'static str> {
    redirects.iter().filter(|it| it.is_write).find_map(|it| match it.path.to_str()? {
        "/proc/sysrq-trigger" => Some(SHUTDOWN),
        path => is_disk(path).then_some(DISK),
    })
}

/// True for a home folder, and for everything in one.
pub(super) fn is_home(text: &str, folder: Option<&Path>) -> bool {
    let rest = ["~root", HOME, "$HOME", "${HOME}", "${HOME:?}"];
    let rest = rest.iter().find_map(|it| text.strip_prefix(it));
    let in_home =
        || text.strip_prefix("./").or(Some(text)).filter(|_| folder == Some(Path::new(HOME)));
    if let Some(rest) = rest.or_else(in_home) {
        return rest.split('/').all(|it| ["", ".", "*", ".*"].contains(&it));
    }
    path_parts(text, folder)
        .is_some_and(|it| it.count == 2 && ["home", "Users"].contains(&it.parts[0]))
}

/// `dd of=/dev/sda`.
pub(super) fn writes_disk(words: Args<'_>, _: Option<&Path>) -> Option<&'static str> {
    words.iter().filter_map(|it| it.text.strip_prefix("of=")).any(is_disk).then_some(DISK)
}

/// `mkfs /dev/sda`.
pub(super) fn overwrites_disk(words: Args<'_>, _: Option<&Path>) -> Option<&'static str> {
    operands(words).any(|it| is_disk(&it.text)).then_some(DISK)
}

/// `cp x /dev/sda`. Only its last operand is written.
pub(super) fn copies_to_disk(words: Args<'_>, _: Option<&Path>) -> Option<&'static str> {
    operands(words).next_back().is_some_and(|it| is_disk(&it.text)).then_some(DISK)
}

fn is_disk(text: &str) -> bool {
    let Some(path) = path_parts(text, None) else { return false };
    let name = name(text);
    let prefixes = ["sd", "hd", "vd", "xvd", "nvme", "mmcblk", "disk", "rdisk", "md", "dm-"];
    let is_disk_name = prefixes.iter().any(|it| {
        name.strip_prefix(it)
            .is_some_and(|it| it.starts_with(|it: char| it.is_ascii_alphanumeric()))
    });
    match path.count {
        2 => path.parts[0] == "dev" && is_disk_name,
        3 => path.parts[0] == "dev" && ["mapper", "disk"].contains(&path.parts[1]),
        4.. => path.parts[..2] == ["dev", "disk"],
        _ => false,
    }
}

/// True for `kill -9 -1`, `kill -s KILL -1` and `kill -- -1`. In `kill -1 7`, `-1` is a signal
/// number.
pub(super) fn kills_all_processes(words: Args<'_>, _: Option<&Path>) -> Option<&'static str> {
    let mut rest = words.iter().map(|it| it.text.as_str()).peekable();
    let takes_value = rest.next_if(|it| it.starts_with('-') && *it != "--").is_some_and(|it| {
        // These take the signal as the next word.
        ["-s", "-n", "--signal"].contains(&it)
    });
    if takes_value {
        rest.next();
    }
    rest.any(|it| it == "-1").then_some("kills every process")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::read_only::tests::simple;
    use super::super::{SimpleCommand, classify, parse};
    use turnwright_types::dialect::ShellDialect;

    fn is_catastrophic(line: &str, folder: &str) -> bool {
        let folder = Some(PathBuf::from(folder));
        classify(&SimpleCommand { folder, ..simple(line) }).catastrophe.is_some()
    }

    #[test]
    fn catastrophes_are_recognised_however_they_are_written() {
        for line in [
            "rm -rf /",
            "rm -fr /",
            "rm -r -f /",
            "rm -f -R /",
            "rm --recursive --force /",
            "rm --rec /",
            "rm -rf --no-preserve-root /",
            "rm / -rf",
            "rm -rf -- /",
            "rm -rf /et*",
            "rm -rf /?sr",
            "rm -rf /{etc,usr}",
            "rm -rf /u*/bin",
            "pipenv run rm -rf /",
            "dotenv -- rm -rf /",
            "rm -rf //",
            "rm -rf /.",
            "rm -rf /./",
            "rm -rf /tmp/..",
            "rm -rf /a/b/../..",
            "rm -rf /*",
            "rm -rf '/*'",
            "rm -rf ~",
            "rm -rf ~/",
            "rm -rf ~/*",
            "rm -rf $HOME",
            "rm -rf ${HOME}/",
            "rm -rf x /home",
            "rm -rf /home/",
            "rm -rf /home/u",
            "rm -rf /home/u/*",
            "rm -rf /Users/u",
            "rm -rf /etc",
            "rm -rf /usr/*",
            "rm -rf /usr/lib",
            "rm -rvf /var",
            "/bin/rm -rf /",
            "sudo rm -rf /",
            "sudo -n rm -rf /",
            "sudo -u root rm -rf /",
            "doas rm -rf /etc",
            "sudo env A=b rm -rf /",
            "busybox rm -rf /",
            "timeout 9 rm -rf /",
            "find / -delete",
            "find / -type f -delete",
            "find / -exec rm {} +",
            "find -L / -delete",
            "find / -print -delete",
            "find / -maxdepth 1 -exec rm -rf {} +",
            "fakeroot rm -rf /",
            "rm -rf {/etc,/usr}",
            "rm -rf {x,{/etc,y}}",
            &format!("rm -rf {}/etc{}", "{".repeat(30_000), "}".repeat(30_000)),
            "rm -rf /proc/self/root/etc",
            "rm -rf ~/.*",
            "rm -rf ~root",
            "rm -rf ${HOME:?}/*",
            "mv ~ /x",
            "shutdown -h now -c",
            "systemctl isolate reboot.target",
            "mkntfs /dev/sda1",
            "find ~ -type f -exec rm -f {} ;",
            "find ~ -delete",
            "mv / x",
            "mv /* x",
            "mv /etc /x",
            "chmod -R 777 /",
            "chmod 777 -R /",
            "chmod --recursive a+w /etc",
            "chown -R u /",
            "chown -hR u:u /usr",
            "chgrp -R u /*",
            "dd if=/dev/zero of=/dev/sda",
            "dd of=/dev/nvme0n1 if=a",
            "dd of=//dev/sda1",
            "mkfs /dev/sda1",
            "mkfs.ext4 -F /dev/sda1",
            "mkfs -t ext4 /dev/vda",
            "wipefs -a /dev/sdb",
            "shred /dev/sda",
            "tee /dev/sda",
            "cp a.iso /dev/sdb",
            "fdisk /dev/mapper/x",
            "blkdiscard /dev/disk/by-id/x",
            "shutdown now",
            "shutdown -h now",
            "sudo reboot",
            "halt",
            "poweroff",
            "init 0",
            "telinit 6",
            "systemctl poweroff",
            "systemctl reboot",
            "kill -9 -1",
            "kill -KILL -1",
            "kill -s KILL -1",
            "kill -- -1",
            "kill -1 -1",
        ] {
            assert!(is_catastrophic(line, "."), "{line}");
        }
        for (line, folder) in [("rm -rf *", "/"), ("rm -rf .", "/etc"), ("rm -rf ..", "/home/u")] {
            assert!(is_catastrophic(line, folder), "{line} in {folder}");
        }
    }

    #[test]
    fn a_change_to_the_home_folder_before_it_counts() {
        for (line, expected) in [
            ("cd ~ && rm -rf *", true),
            ("cd && rm -rf ./*", true),
            ("cd $HOME; rm -rf .", true),
            ("cd -- \"${HOME}\" && rm -r *", true),
            ("cd ~/ && sudo rm -rf *", true),
            ("cd ~ && find . -delete", true),
            ("cd ~ && rm -rf target", false),
            ("cd ~/project && rm -rf *", false),
            ("cd ~ && cd project && rm -rf *", false),
            ("cd src && rm -rf *", false),
            ("cd ~ && rm *", false),
        ] {
            let script = parse(line, ShellDialect::Bash);
            let is_found = script.commands.iter().any(|it| classify(it).catastrophe.is_some());
            assert_eq!(is_found, expected, "{line}");
        }
    }

    #[test]
    fn a_disk_is_not_overwritten_by_a_redirection() {
        for (line, expected) in [
            ("cat x > /dev/sda", true),
            ("echo b > /proc/sysrq-trigger", true),
            ("echo x >> /dev/nvme0n1", true),
            ("cat < /dev/sda", false),
            ("echo x > /dev/null", false),
        ] {
            let script = parse(line, ShellDialect::Bash);
            let is_found = script.commands.iter().any(|it| classify(it).catastrophe.is_some());
            assert_eq!(is_found, expected, "{line}");
        }
    }

    #[test]
    fn harmless_and_merely_dangerous_commands_are_not_catastrophic() {
        for line in [
            "rm /",
            "rm -rf x",
            "rm -rf *",
            "rm -rf .",
            "rm -rf /tmp/x",
            "rm -rf /tmp",
            "rm -rf /home/u/project/target",
            "rm -rf /usr/local/x",
            "rm -rf ~/x",
            "rm -rf ./etc",
            "rm -f /etc/x",
            "rm -rf -- -r",
            "echo rm -rf /",
            "grep -r shutdown /etc",
            "time grep shutdown x",
            "ls -R /",
            "find / -name x",
            "find / -name x -delete",
            "find / -name x -exec rm -f {} ;",
            "find / -exec grep x {} +",
            "rm -rf /tm*",
            "command -v shutdown",
            "rm -rf ~rooted",
            "rm -rf a,/",
            "systemctl isolate rescue.target",
            "find . -delete",
            "mv a /etc",
            "mv -t /opt a",
            "mv /tmp/a b",
            "chmod -R 755 .",
            "chmod 755 /",
            "chmod -R 755 /srv/app",
            "chown -R u /home/u",
            "dd if=/dev/sda of=a",
            "dd if=a of=/dev/null",
            "cp /dev/sda a",
            "cp a /dev/null",
            "tee /dev/stderr",
            "mkfs.ext4 disk.img",
            "shutdown --help",
            "npm init 0",
            "git init",
            "systemctl status x",
            "kill -9 123",
            "kill -1 123",
            "kill 123",
            "kill -9 -123",
            "reboot-helper",
        ] {
            assert!(!is_catastrophic(line, "."), "{line}");
        }
    }
}
