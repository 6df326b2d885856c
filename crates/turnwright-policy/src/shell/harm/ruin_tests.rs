//! What is certain to ruin a system, and what merely looks like that.

use std::path::{Path, PathBuf};

use super::super::args::tests::simple;
use super::super::{SimpleCommand, parse};
use super::ruin::{Ruin, ruin, ruin_of_command};
use turnwright_types::shell_script::ShellDialect;

fn is_certain(command: &SimpleCommand) -> bool {
    matches!(ruin_of_command(command, Path::new(""), None), Some(Ruin::Certain(_)))
}

fn is_catastrophic(line: &str, folder: &str) -> bool {
    let folder = Some(PathBuf::from(folder));
    is_certain(&SimpleCommand { folder, ..simple(line) })
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
        "rm -rf /System/Volumes/Data/Users/u",
        "rm -rf /System/Volumes/Data/*",
        "rm -rf /System/Volumes/*",
        "rm -rf /private/var",
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
fn only_on_macos_the_case_of_letters_does_not_count() {
    let is_macos = cfg!(target_os = "macos");
    for line in ["rm -rf /users/u", "rm -rf /PRIVATE/var", "chmod -R 777 /LIBRARY"] {
        assert_eq!(is_catastrophic(line, "."), is_macos, "{line}");
    }
    for line in ["rm -rf $x/library", "rm -rf $x/users/u", "rm -rf $x/system"] {
        let found = ruin_of_command(&simple(line), Path::new(""), None);
        assert_eq!(matches!(found, Some(Ruin::Possible(_))), is_macos, "{line}");
    }
}

#[test]
fn the_users_home_counts_wherever_it_is_and_by_any_path() {
    const CERTAIN: Option<bool> = Some(true);
    const POSSIBLE: Option<bool> = Some(false);
    for (line, expected) in [
        ("rm -rf /var/home/u", CERTAIN),
        ("rm -rf /var/home/u/*", CERTAIN),
        ("rm -rf /var/home", CERTAIN),
        ("rm -rf ..", POSSIBLE),
        ("rm -rf ../*", POSSIBLE),
        ("rm -rf ../..", POSSIBLE),
        ("rm -rf ../other", None),
        ("rm -rf *", None),
        ("rm -rf .", None),
        ("rm -rf /var/home/u/project", None),
        ("rm -rf /var/home/other", None),
    ] {
        let command = SimpleCommand { folder: Some(PathBuf::new()), ..simple(line) };
        let home = Some(Path::new("/var/home/u"));
        let ruin = ruin_of_command(&command, Path::new("/var/home/u/project"), home);
        assert_eq!(ruin.map(|ruin| matches!(ruin, Ruin::Certain(_))), expected, "{line}");
    }
}

#[test]
fn a_project_that_contains_the_home_can_be_cleaned() {
    let ruins = |line: &str, home: &str| {
        let script = parse(line, ShellDialect::Bash);
        let workdir = Path::new("/data/work");
        let home = Some(Path::new(home));
        (0..script.commands.len()).any(|index| ruin(&script, index, workdir, home).is_some())
    };
    for line in [
        "rm -rf *",
        "rm -rf build ./target",
        "chmod -R u+w .",
        "find . -name '*.pyc' -delete",
        "find . -name '*.pyc' | xargs rm -f",
        "cd /data/work && find . -name __pycache__ -exec rm -rf {} +",
        "cd /data/work && rm -rf build/*",
    ] {
        for home in ["/data/work", "/data/work/.home"] {
            assert!(!ruins(line, home), "{line}, {home}");
        }
    }
    for line in
        ["rm -rf ..", "rm -rf /data", "rm -rf /data/work", "rm -rf ~", "find .. -type f | xargs rm"]
    {
        assert!(ruins(line, "/data/work"), "{line}");
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
        let is_found = script.commands.iter().any(is_certain);
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
        let is_found = script.commands.iter().any(is_certain);
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

#[test]
fn a_drive_is_not_deleted_or_formatted() {
    for (line, expected) in [
        (r"rd /s /q C:\", true),
        (r"rd/s/q c:\", true),
        (r"RMDIR /Q /S D:", true),
        (r"del /f /s /q C:\*", true),
        (r"erase /s \*.*", true),
        (r"echo x & rd /s \", true),
        (r"rd /s /q %USERPROFILE%", true),
        (r#"rd /s "C:\Program Files""#, true),
        (r"rd /s C:\Windows\*", true),
        (r"cmd /c rd /s C:/", true),
        (r#"rd /s /q \"C:\project\build\""#, true),
        (r#"cmd /d /c "rd /s /q \"\\?\C:\project\build\"""#, true),
        (r"rd /s /q \\?\C:\", true),
        (r#"powershell -Command "Remove-Item -Recurse -Force 'D:\'""#, true),
        (r"powershell Remove-Item $env:USERPROFILE -Rec -Fo", true),
        (r#"powershell -Command "Remove-Item -Recurse \"C:\"""#, true),
        (r#"rd /s /q \"C:\project\a -release\""#, true),
        ("format c: /q", true),
        (r"rd /s /q C:\project\target", false),
        ("rd /s /q target", false),
        (r#"rd /s /q "C:\project\my build\""#, false),
        (r"rd /s /q \\?\C:\project\nul", false),
        (r#"powershell -Command "Remove-Item -Recurse 'C:\project\a'""#, false),
        (r#"powershell -Command "Remove-Item -Recurse \"C:\project\a\"""#, false),
        (r"rd C:\", false),
        (r"del C:\*", false),
        (r"dir /s C:\", false),
        (r"rd /s C:\Users\me\project", false),
        ("cargo format c", false),
        ("format", false),
    ] {
        let script = parse(line, ShellDialect::Cmd);
        let is_found = script.commands.iter().any(|command| {
            matches!(ruin_of_command(command, Path::new(""), None), Some(Ruin::Certain(_)))
        });
        assert_eq!(is_found, expected, "{line}");
    }
}
