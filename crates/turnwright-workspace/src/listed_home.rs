//! The home folder in the system's list of users.

use std::path::PathBuf;

/// The home folder of this user in `/etc/passwd`; `None` if there is none. ssh has its keys there whatever `HOME` says,
/// which jobs in containers, snaps and `sudo` set to another folder. Blocks.
pub fn listed_home() -> Option<PathBuf> {
    let list = std::fs::read("/etc/passwd").ok()?;
    home_of(rustix::process::geteuid().as_raw(), &String::from_utf8_lossy(&list))
}

fn home_of(user: u32, list: &str) -> Option<PathBuf> {
    list.lines().find_map(|line| {
        let mut fields = line.split(':').skip(2);
        let is_listed = fields.next()?.parse() == Ok(user);
        let home = fields.nth(2).filter(|home| is_listed && home.starts_with('/'))?;
        Some(home.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_home_of_a_user_is_in_the_list() {
        let list = "# users\nroot:x:0:0:root:/root:/bin/sh\n+::::::\nlong:x:10:10::/long:\n\
                    me:x:1000:1000:Me,,,:/home/me:/bin/sh\nalso:x:1000:1:::/bin/sh\nnone:x:5:5:::\n";
        for (user, expected) in [
            (0, Some("/root")),
            (10, Some("/long")),
            (1000, Some("/home/me")),
            (5, None),
            (1, None),
        ] {
            assert_eq!(home_of(user, list), expected.map(PathBuf::from), "{user}");
        }
    }
}
