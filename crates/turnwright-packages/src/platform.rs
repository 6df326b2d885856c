//! The platforms that a release has programs for, and what each kind of package calls them.

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Platform {
    /// The name of the Rust target.
    pub(crate) target: &'static str,
    /// The operating system as npm knows it.
    pub(crate) npm_os: &'static str,
    /// The processor as npm knows it.
    pub(crate) npm_cpu: &'static str,
    /// The tag of a wheel for PyPI. A static program runs with every C library.
    pub(crate) wheel: &'static str,
    /// Debian's name of the processor; `None` if it is not Linux.
    pub(crate) debian: Option<&'static str>,
    /// The name in the ACP registry.
    pub(crate) registry: &'static str,
}

const PLATFORMS: &[Platform] = &[
    Platform {
        target: "x86_64-unknown-linux-musl",
        npm_os: "linux",
        npm_cpu: "x64",
        wheel: "manylinux_2_17_x86_64.musllinux_1_1_x86_64",
        debian: Some("amd64"),
        registry: "linux-x86_64",
    },
    Platform {
        target: "aarch64-unknown-linux-musl",
        npm_os: "linux",
        npm_cpu: "arm64",
        wheel: "manylinux_2_17_aarch64.musllinux_1_1_aarch64",
        debian: Some("arm64"),
        registry: "linux-aarch64",
    },
    Platform {
        target: "x86_64-apple-darwin",
        npm_os: "darwin",
        npm_cpu: "x64",
        wheel: "macosx_11_0_x86_64",
        debian: None,
        registry: "darwin-x86_64",
    },
    Platform {
        target: "aarch64-apple-darwin",
        npm_os: "darwin",
        npm_cpu: "arm64",
        wheel: "macosx_11_0_arm64",
        debian: None,
        registry: "darwin-aarch64",
    },
    Platform {
        target: "x86_64-pc-windows-gnu",
        npm_os: "win32",
        npm_cpu: "x64",
        wheel: "win_amd64",
        debian: None,
        registry: "windows-x86_64",
    },
    Platform {
        target: "x86_64-pc-windows-msvc",
        npm_os: "win32",
        npm_cpu: "x64",
        wheel: "win_amd64",
        debian: None,
        registry: "windows-x86_64",
    },
];

impl Platform {
    /// The platform of a Rust target.
    ///
    /// # Errors
    /// The known targets, if it is none of them.
    pub(crate) fn of(target: &str) -> Result<&'static Platform, String> {
        PLATFORMS.iter().find(|it| it.target == target).ok_or_else(|| {
            let known: Vec<_> = PLATFORMS.iter().map(|it| it.target).collect();
            format!("`{target}` has no packages; known are {}", known.join(", "))
        })
    }

    pub(crate) fn is_windows(&self) -> bool {
        self.npm_os == "win32"
    }

    /// The file name of the program.
    pub(crate) fn program(&self) -> &'static str {
        if self.is_windows() { "turnwright.exe" } else { "turnwright" }
    }

    /// The end of the name of the archive with the program.
    pub(crate) fn archive_suffix(&self) -> &'static str {
        if self.is_windows() { "zip" } else { "tar.gz" }
    }
}
