//! The places in the home folder that package managers write: their caches, and what they install for the user.

use std::path::{Path, PathBuf};

use turnwright_types::effect::MovedPlace;

/// A place that package managers write.
pub struct DefaultCache {
    /// Relative to the home folder.
    pub folder: &'static str,
    /// The programs that make it when they run outside of the sandbox.
    pub made_by: &'static [&'static str],
    /// Users have such folders in their `PATH`.
    pub has_programs: bool,
}

const fn cache(folder: &'static str, made_by: &'static [&'static str]) -> DefaultCache {
    DefaultCache { folder, made_by, has_programs: false }
}

const fn programs(folder: &'static str, made_by: &'static [&'static str]) -> DefaultCache {
    DefaultCache { folder, made_by, has_programs: true }
}

pub const DEFAULT_CACHES: &[DefaultCache] = &[
    // The Android plugin of Gradle takes a lock there for each build.
    cache(".android", &["adb"]),
    // Ansible does not start without a place for temporary files there.
    cache(".ansible", &["ansible"]),
    cache(".bundle", &["bundle"]),
    cache(".bun/install/cache", &["bun"]),
    // Cabal keeps its files elsewhere unless there is this folder.
    programs(".cabal", &[]),
    // Of many programs; one of them is always there.
    cache(".cache", &["sh"]),
    cache(".cargo/git", &["cargo"]),
    cache(".cargo/registry", &["cargo"]),
    // Only old versions make it.
    cache(".ccache", &[]),
    cache(".conan2", &["conan"]),
    // These two do not start without a place for their settings.
    cache(".config/Cypress", &[]),
    cache(".config/libreoffice", &["soffice"]),
    cache(".cpanm", &["cpanm"]),
    programs(".dotnet", &["dotnet"]),
    cache(".dub", &["dub"]),
    cache(".elm", &["elm"]),
    programs(".gem", &["gem"]),
    cache(".gitlibs", &["clojure"]),
    // A project brings Gradle and Maven along: `gradlew`, `mvnw`.
    cache(".gradle", &["gradle", "java"]),
    cache(".hex", &["mix"]),
    cache(".ivy2", &["sbt"]),
    programs(".julia", &["julia"]),
    // Of Kotlin, which Gradle starts.
    cache(".konan", &[]),
    programs(".local/bin", &["pip", "pip3", "pipx", "uv"]),
    cache(".local/lib", &["pip", "pip3"]),
    cache(".local/share/NuGet", &["dotnet"]),
    programs(".local/share/gem", &["gem"]),
    cache(".local/share/hatch", &["hatch"]),
    cache(".local/share/jupyter/runtime", &["jupyter"]),
    cache(".local/share/pipx", &["pipx"]),
    cache(".local/share/pnpm", &["pnpm"]),
    cache(".local/share/pypoetry", &["poetry"]),
    cache(".local/share/uv", &["uv"]),
    cache(".local/share/virtualenvs", &["pipenv"]),
    // The programs in `.local/bin` are links into it.
    programs(".local/state/cabal", &["cabal"]),
    cache(".m2", &["mvn", "java"]),
    cache(".mix", &["mix"]),
    cache(".npm", &["npm"]),
    // Only users who have changed npm's prefix have it.
    programs(".npm-global", &[]),
    cache(".nuget/packages", &["dotnet"]),
    programs(".platformio", &["pio"]),
    programs(".pub-cache", &["dart", "flutter"]),
    cache(".rustup", &["rustup"]),
    cache(".sbt", &["sbt"]),
    cache(".stack", &["stack"]),
    programs(".swiftpm", &[]),
    cache(".templateengine", &["dotnet"]),
    // Of PyTorch, with a GPU.
    cache(".triton", &["nvidia-smi"]),
    cache(".yarn", &["yarn"]),
    cache("go/pkg/mod", &["go"]),
];

/// The default caches with their paths. Variables may have moved those that have no programs, or parts of them.
pub fn default_caches<'a>(
    home: &'a Path,
    moved: &'a [MovedPlace],
) -> impl Iterator<Item = (&'static DefaultCache, PathBuf)> + 'a {
    DEFAULT_CACHES.iter().flat_map(move |cache| {
        let moved = moved.iter().filter(|_| !cache.has_programs);
        let elsewhere = moved.filter_map(move |moved| moved.find(cache.folder, home));
        elsewhere.chain([home.join(cache.folder)]).map(move |path| (cache, path))
    })
}
