//! The formula for Homebrew, which installs the archives of the release.

use std::fmt::Write;
use std::io;

use crate::platform::Platform;
use crate::release::{DESCRIPTION, LICENSE_NAME, Release, VERSION};

/// Homebrew's names for each platform.
const BLOCKS: [(&str, &str, &str); 4] = [
    ("on_macos", "on_arm", "aarch64-apple-darwin"),
    ("on_macos", "on_intel", "x86_64-apple-darwin"),
    ("on_linux", "on_arm", "aarch64-unknown-linux-musl"),
    ("on_linux", "on_intel", "x86_64-unknown-linux-musl"),
];

/// Writes the formula. `archives` are the platforms with their archives and checksums.
pub(crate) fn make(
    release: &Release,
    archives: &[(&'static Platform, String, String)],
) -> io::Result<()> {
    let mut blocks = String::new();
    for (system, processor, target) in BLOCKS {
        let Some((_, file, sum)) = archives.iter().find(|it| it.0.target == target) else {
            continue;
        };
        let url = release.url(file);
        write!(
            blocks,
            "\n  {system} do\n    {processor} do\n      url \"{url}\"\n      sha256 \"{sum}\"\n    end\n  end\n"
        )
        .ok();
    }
    let formula = format!(
        "class Turnwright < Formula\n  desc \"{DESCRIPTION}\"\n  homepage \"{}\"\n  version \"{VERSION}\"\n  \
         license \"{LICENSE_NAME}\"\n{blocks}\n  def install\n    bin.install \"turnwright\"\n    \
         man1.install Dir[\"share/man/man1/*\"]\n    \
         bash_completion.install \"share/bash-completion/completions/turnwright\"\n    \
         zsh_completion.install \"share/zsh/vendor-completions/_turnwright\"\n    \
         fish_completion.install \"share/fish/vendor_completions.d/turnwright.fish\"\n  end\n\n  test do\n    \
         assert_match version.to_s, shell_output(\"#{{bin}}/turnwright --version\")\n  end\nend\n",
        release.repository
    );
    release.write("homebrew/turnwright.rb", formula.as_bytes())?;
    Ok(())
}
