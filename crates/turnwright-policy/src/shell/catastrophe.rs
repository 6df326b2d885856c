//! What would ruin the whole system, and is therefore never run, whatever the mode and the rules
//! say. It is a short list: a ban that is wrong has no way around it.

use std::path::Path;

use super::args::{Words, is_option, name, operands};

const FILES: &str = "deletes the system or all of a user's files";
const DISK: &str = "destroys what is on a disk";
const RIGHTS: &str = "changes the rights of the whole system";
const STOP: &str = "stops the machine";

/// Folders that belong to the system, or to all its users.
const SYSTEM: &[&str] = &[
    "bin",
    "boot",
    "dev",
    "etc",
    "home",
    "lib",
    "lib32",
    "lib64",
    "mnt",
    "media",
    "opt",
    "proc",
    "root",
    "run",
    "sbin",
    "srv",
    "sys",
    "usr",
    "var",
    "Applications",
    "Library",
    "System",
    "Users",
    "Volumes",
    "private",
];

/// What a program would do with these words, in that folder.
pub(super) fn of(program: &str, words: Words<'_>, folder: Option<&Path>) -> Option<&'static str> {
    match program {
        "rm" => removal(words, folder),
        "find" => clearing(words, folder),
        "mv" => moves(words, folder),
        "chmod" | "chown" | "chgrp" => {
            let is_deep = words.iter().any(|it| is_option(&it.text, 'R', "--recursive"));
            let is_system = operands(words).any(|it| is_system(&it.text, folder));
            (is_deep && is_system).then_some(RIGHTS)
        }
        "dd" => writes_disk(words.iter().filter_map(|it| it.text.strip_prefix("of="))),
        "cp" | "tee" | "shred" | "truncate" | "wipefs" | "blkdiscard" | "fdisk" | "sfdisk"
        | "sgdisk" | "parted" | "mkswap" | "mke2fs" => {
            // Reading from a disk is copying it to somewhere else.
            let skipped =
                if program == "cp" { operands(words).count().saturating_sub(1) } else { 0 };
            writes_disk(operands(words).skip(skipped).map(|it| it.text.as_str()))
        }
        _ if program == "mkfs" || program.starts_with("mkfs.") => {
            writes_disk(operands(words).map(|it| it.text.as_str()))
        }
        "shutdown" | "reboot" | "halt" | "poweroff" => (!asks_help(words)).then_some(STOP),
        "init" | "telinit" => {
            let is_level = |it: &str| ["0", "6"].contains(&it);
            (operands(words).count() == 1 && operands(words).any(|it| is_level(&it.text)))
                .then_some(STOP)
        }
        "systemctl" | "loginctl" => {
            let stops =
                ["poweroff", "reboot", "halt", "kexec", "soft-reboot", "suspend", "hibernate"];
            operands(words).next().filter(|it| stops.contains(&it.text.as_str())).map(|_| STOP)
        }
        "kill" => kills_all(words).then_some("ends every process"),
        _ => None,
    }
}

fn asks_help(words: Words<'_>) -> bool {
    words.iter().any(|it| ["--help", "--version", "-c"].contains(&it.text.as_str()))
}

fn removal(words: Words<'_>, folder: Option<&Path>) -> Option<&'static str> {
    let is_deep = words
        .iter()
        .take_while(|it| it.text != "--")
        .any(|it| is_option(&it.text, 'r', "--recursive") || is_option(&it.text, 'R', ""));
    let is_all = |it: &str| is_system(it, folder) || is_home(it, folder);
    (is_deep && operands(words).any(|it| is_all(&it.text))).then_some(FILES)
}

fn moves(words: Words<'_>, folder: Option<&Path>) -> Option<&'static str> {
    let has_target = words.iter().any(|it| is_option(&it.text, 't', "--target-directory"));
    let count = operands(words).count().saturating_sub(1);
    let is_moved = operands(words).take(count).any(|it| is_system(&it.text, folder));
    (is_moved && !has_target).then_some(FILES)
}

/// `find / -delete` with nothing that chooses.
fn clearing(words: Words<'_>, folder: Option<&Path>) -> Option<&'static str> {
    let is_start = |it: &&str| !it.starts_with(['-', '(', '!']);
    let mut starts = words.iter().map(|it| it.text.as_str()).take_while(is_start);
    let chooses = |it: &str| {
        it.starts_with('-')
            && !["-delete", "-depth", "-type", "-xdev", "-mount", "-mindepth"].contains(&it)
    };
    let is_all = |it: &str| is_system(it, folder) || is_home(it, folder);
    let deletes = words.iter().any(|it| it.text == "-delete");
    (deletes && starts.any(is_all) && !words.iter().any(|it| chooses(&it.text))).then_some(FILES)
}

/// The parts of a path without what makes no difference; `None` if nobody knows where it begins. A
/// last `*` stands for all that is in a folder.
struct Place<'a> {
    parts: [&'a str; 3],
    count: usize,
}

fn place<'a>(text: &'a str, folder: Option<&'a Path>) -> Option<Place<'a>> {
    let mut place = Place { parts: [""; 3], count: 0 };
    if !text.starts_with('/') {
        let folder = folder.filter(|it| it.is_absolute())?;
        place.enter(folder.to_str()?);
    }
    let text =
        text.strip_suffix('*').filter(|it| it.ends_with('/') || it.is_empty()).unwrap_or(text);
    place.enter(text);
    Some(place)
}

impl<'a> Place<'a> {
    fn enter(&mut self, path: &'a str) {
        for part in path.split('/') {
            match part {
                "" | "." => {}
                ".." => self.count = self.count.saturating_sub(1),
                part => {
                    if let Some(place) = self.parts.get_mut(self.count) {
                        *place = part;
                    }
                    self.count += 1;
                }
            }
        }
    }
}

/// Whether it is `/` or one of the system's folders, or all that is in them.
fn is_system(text: &str, folder: Option<&Path>) -> bool {
    let Some(place) = place(text, folder) else { return false };
    match place.count {
        0 => true,
        1 => SYSTEM.contains(&place.parts[0]),
        2 => {
            place.parts[0] == "usr"
                && ["bin", "sbin", "lib", "lib64", "share"].contains(&place.parts[1])
        }
        _ => false,
    }
}

/// Whether it is somebody's home, or all that is in it.
fn is_home(text: &str, folder: Option<&Path>) -> bool {
    let rest = ["~", "$HOME", "${HOME}"].iter().find_map(|it| text.strip_prefix(it));
    if let Some(rest) = rest {
        return rest.split('/').all(|it| ["", ".", "*"].contains(&it));
    }
    place(text, folder).is_some_and(|it| it.count == 2 && ["home", "Users"].contains(&it.parts[0]))
}

fn writes_disk<'a>(mut paths: impl Iterator<Item = &'a str>) -> Option<&'static str> {
    paths.any(is_disk).then_some(DISK)
}

fn is_disk(path: &str) -> bool {
    let Some(place) = place(path, None) else { return false };
    let name = name(path);
    let kinds = ["sd", "hd", "vd", "xvd", "nvme", "mmcblk", "disk", "rdisk", "md", "dm-"];
    let is_named = kinds.iter().any(|it| {
        name.strip_prefix(it)
            .is_some_and(|it| it.starts_with(|it: char| it.is_ascii_alphanumeric()))
    });
    match place.count {
        2 => place.parts[0] == "dev" && is_named,
        3 => place.parts[0] == "dev" && ["mapper", "disk"].contains(&place.parts[1]),
        4.. => place.parts[..2] == ["dev", "disk"],
        _ => false,
    }
}

/// `kill -9 -1`, `kill -s KILL -1`, `kill -- -1`; `kill -1 7` is a signal by its number.
fn kills_all(words: Words<'_>) -> bool {
    let mut rest = words.iter().map(|it| it.text.as_str()).peekable();
    let is_signal = rest.next_if(|it| it.starts_with('-') && *it != "--").is_some_and(|it| {
        // Its value is the next word.
        ["-s", "-n", "--signal"].contains(&it)
    });
    if is_signal {
        rest.next();
    }
    rest.any(|it| it == "-1")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::known::tests::simple;
    use super::super::{Simple, nature};

    fn is_banned(line: &str, folder: &str) -> bool {
        let folder = Some(PathBuf::from(folder));
        nature(&Simple { folder, ..simple(line) }).catastrophe.is_some()
    }

    #[test]
    fn what_would_ruin_the_system_is_recognised_however_it_is_written() {
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
            assert!(is_banned(line, "."), "{line}");
        }
        for (line, folder) in [("rm -rf *", "/"), ("rm -rf .", "/etc"), ("rm -rf ..", "/home/u")] {
            assert!(is_banned(line, folder), "{line} in {folder}");
        }
    }

    #[test]
    fn what_is_harmless_or_only_dangerous_is_not_banned() {
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
            assert!(!is_banned(line, "."), "{line}");
        }
    }
}
