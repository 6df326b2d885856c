//! The files of a project that other programs run or obey, as a table, from which `docs/protected-files.md` is written;
//! and the parts of virtual environments of Python, and of conda, that shells and editors run.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::{
    ENVIRONMENT_FILE, ENVIRONMENT_PROGRAMS, harmless_contents as harmless, part, parts, without_end,
};
use turnwright_types::text;

/// Files that are protected for one reason.
pub(super) struct FileClass {
    /// The reason that a question shows.
    pub(super) reason: &'static str,
    pub(super) protection: Protection,
    pub(super) programs: &'static [Program],
}

/// A program, the documentation that names its files, and the files, each alone or in a list with one a line. A file is
/// protected by its last parts, at any depth, because a folder below may be cloned or opened by itself; everything below
/// it is protected, too.
pub(in crate::permission) type Program = (&'static str, &'static str, &'static [&'static str]);

/// The tools that may change the files of a class without a question.
#[derive(Clone, Copy)]
pub(super) enum Protection {
    /// Nothing.
    Full,
    /// Nothing, but commands may make such files in subfolders, where the program does not look.
    TopFolder,
    /// Commands, as long as the content is harmless: git and package managers write these files every day. Gets the
    /// folder of the file, and the content.
    Content(fn(&Path, &str) -> bool),
    /// Commands, because these files differ between the branches of a repository.
    FileTools,
    /// Nothing on Windows. Other systems do not read these files.
    Windows,
}

const AGENTS: &str = "settings of an agent, which say what it may run";
const EDITORS: &str = "editors run what it says";
const SHELLS: &str = "programs read or run it at startup";
const CI: &str = "CI servers run what it says, with their secrets";
const HOOKS: &str = "git runs it as a hook";
const MISE: &str = "mise runs it when somebody enters the folder";
const CARGO: &str = "cargo runs what it says, in every folder below";
const TOOLCHAIN: &str = "it may say which programs run in the folder";
const PACKAGES: &str = "package managers run what it says";
const VERSION_CONTROL: &str = "version control runs what it says";
pub(super) const PYTHON: &str = "editors and shells run what is in a virtual environment of Python";

/// The forms of names that are protected anywhere: how they begin and end, in lower case, and why.
pub(super) const NAME_FORMS: &[(&str, &str, &str)] = &[
    ("", ".code-workspace", EDITORS),
    ("", ".sublime-project", EDITORS),
    ("mise.", ".toml", MISE),
    (".mise.", ".toml", MISE),
];

/// The files with the version of one program that mise and the program's own version managers read, one a line.
pub const IDIOMATIC_VERSION_FILES: &str = include_str!("idiomatic_version_files.txt");

const fn class(
    reason: &'static str,
    protection: Protection,
    programs: &'static [Program],
) -> FileClass {
    FileClass { reason, protection, programs }
}

/// The classes, without those for other systems. The first class that lists a path gives the reason.
pub(super) fn file_classes() -> impl Iterator<Item = &'static FileClass> {
    let is_read =
        |class: &&FileClass| cfg!(windows) || !matches!(class.protection, Protection::Windows);
    CLASSES.iter().filter(is_read)
}

impl FileClass {
    pub(super) fn files(&self) -> impl Iterator<Item = &'static str> {
        self.programs.iter().flat_map(files_of)
    }
}

/// The files of a program.
fn files_of(program: &Program) -> impl Iterator<Item = &'static str> {
    program.2.iter().copied().flat_map(text::list_entries)
}

#[rustfmt::skip]
const CLASSES: &[FileClass] = &[
    class("settings of this agent", Protection::Full, &[
        ("Turnwright", "configuration.md", &[".turnwright"]),
    ]),
    class(AGENTS, Protection::Full, &[
        ("Aider", "https://aider.chat/docs/config/aider_conf.html", &[".aider.conf.yml"]),
        ("Amazon Q", "https://docs.aws.amazon.com/amazonq/latest/qdeveloper-ug/mcp-ide.html", &[".amazonq"]),
        ("Amp", "https://ampcode.com/manual", &[".amp"]),
        ("Antigravity", "https://antigravity.google/docs/rules-workflows", &[".agent/rules", ".agent/skills", ".agent/workflows", ".antigravity"]),
        ("Augment", "https://docs.augmentcode.com/cli/settings", &[".augment"]),
        ("Claude Code", "https://code.claude.com/docs/en/settings", &[".claude", ".lsp.json", ".mcp.json"]),
        ("Cline", "https://docs.cline.bot/customization/hooks", &[".clinerules/hooks"]),
        ("CodeBuddy", "https://cloud.tencent.com/document/product/1831/137009", &[".codebuddy"]),
        ("Code Puppy and its like", "https://github.com/mpfaffenberger/code_puppy/pull/615", &[".code_puppy", ".jcode", ".kode", ".letta", ".mcprc", ".omp", "reasonix.toml"]),
        ("Codex", "https://github.com/openai/codex/blob/main/docs/config.md", &[".codex"]),
        ("Conductor", "https://docs.conductor.build/core/repo-setup", &["conductor.json"]),
        ("Continue", "https://docs.continue.dev/reference", &[".continue"]),
        ("Copilot CLI", "https://docs.github.com/en/copilot/reference/copilot-cli-reference/cli-hooks-reference", &[".github/hooks", ".github/lsp.json"]),
        ("Crush", "https://github.com/charmbracelet/crush/blob/main/docs/config/README.md", &[".crush.json", ".crushrc", "crush.json", "crushrc"]),
        ("Cursor", "https://cursor.com/docs/context/mcp", &[".cursor"]),
        ("Factory", "https://docs.factory.ai/cli/configuration/mcp", &[".factory"]),
        ("Gemini CLI", "https://geminicli.com/docs/get-started/configuration", &[".gemini"]),
        ("Grok Build", "https://docs.x.ai/build/features/mcp-servers", &[".grok"]),
        ("iFlow CLI", "https://platform.iflow.cn/en/cli/configuration/settings", &[".iflow"]),
        ("Junie", "https://www.jetbrains.com/help/junie/model-context-protocol-mcp.html", &[".junie/mcp"]),
        ("Kilo Code", "https://kilo.ai/docs/automate/mcp/using-in-kilo-code", &[".kilo", ".kilocode", ".kilocodemodes", "kilo.json", "kilo.jsonc"]),
        ("Kimi Code", "https://www.kimi.com/code/docs/en/kimi-code-cli/customization/mcp.html", &[".kimi-code"]),
        ("Kiro", "https://kiro.dev/docs/mcp/configuration", &[".kiro"]),
        ("Mux", "https://github.com/coder/mux/pull/228", &[".mux"]),
        ("OpenCode", "https://opencode.ai/docs/config", &[".opencode", "opencode.json", "opencode.jsonc"]),
        ("OpenHands", "https://docs.openhands.dev/openhands/usage/customization/repository", &[".openhands"]),
        ("Pi", "https://github.com/badlogic/pi-mono/blob/main/packages/coding-agent/docs/extensions.md", &[".pi"]),
        ("Qoder", "https://docs.qoder.com/cli/settings-reference", &[".qoder"]),
        ("Qwen Code", "https://qwenlm.github.io/qwen-code-docs", &[".qwen"]),
        ("Roo Code", "https://docs.roocode.com/features/mcp/using-mcp-in-roo", &[".roo", ".roomodes"]),
        ("Tabnine", "https://docs.tabnine.com/main/getting-started/tabnine-agent/mcp-intro-and-setup/mcp-server-config", &[".tabnine"]),
        ("Trae", "https://docs.trae.cn/ide_add-mcp-servers", &[".trae"]),
        ("Vibe", "https://github.com/mistralai/mistral-vibe", &[".vibe"]),
        ("Windsurf", "https://docs.windsurf.com/windsurf/cascade/mcp", &[".windsurf"]),
        ("several agents", "https://agentskills.io", &[".agents"]),
    ]),
    class(EDITORS, Protection::Full, &[
        ("VS Code", "https://code.visualstudio.com/docs/reference/tasks-appendix", &[".vscode/launch.json", ".vscode/mcp.json", ".vscode/settings.json", ".vscode/tasks.json"]),
        ("CMake Tools for VS Code", "https://github.com/microsoft/vscode-cmake-tools/blob/main/docs/kits.md", &[".vscode/cmake-kits.json"]),
        ("C/C++ for VS Code", "https://code.visualstudio.com/docs/cpp/customize-cpp-settings", &[".vscode/c_cpp_properties.json"]),
        ("Dev Containers", "https://containers.dev/implementors/spec", &[".devcontainer", ".devcontainer.json"]),
        ("Theia", "https://github.com/eclipse-theia/theia/blob/master/packages/task/README.md", &[".theia"]),
        ("Fleet", "https://www.jetbrains.com/help/fleet/run-configurations.html", &[".fleet"]),
        ("JetBrains IDEs", "https://www.jetbrains.com/help/idea/run-debug-configuration.html", &[".idea/runConfigurations", ".idea/startup.xml", ".idea/watcherTasks.xml", ".idea/workspace.xml", ".run"]),
        ("Helix", "https://docs.helix-editor.com/configuration.html", &[".helix"]),
        ("Zed", "https://zed.dev/docs/configuring-zed", &[".zed"]),
        ("Emacs", "https://www.gnu.org/software/emacs/manual/html_node/emacs/Directory-Variables.html", &[".dir-locals-2.el", ".dir-locals.el"]),
        ("Vim, Neovim", "https://neovim.io/doc/user/options.html#'exrc'", &[".exrc", ".gvimrc", ".nvim.lua", ".nvimrc", ".vimrc"]),
        ("localvimrc", "https://github.com/embear/vim-localvimrc", &[".lvimrc"]),
        ("lazy.nvim", "https://lazy.folke.io/configuration", &[".lazy.lua"]),
        ("coc.nvim and its like", "https://github.com/neoclide/coc.nvim/wiki/Using-the-configuration-file", &[".neoconf.json", ".vim/coc-settings.json", ".vim-lsp-settings"]),
        ("Visual Studio", "https://learn.microsoft.com/visualstudio/ide/mcp-servers", &[".vs/launch.vs.json", ".vs/mcp.json", ".vs/tasks.vs.json"]),
        ("Build Server Protocol", "https://build-server-protocol.github.io/docs/overview/server-discovery", &[".bsp"]),
        ("rust-analyzer", "https://rust-analyzer.github.io/book/configuration.html", &["rust-analyzer.toml"]),
    ]),
    class("direnv runs it when somebody enters the folder", Protection::Full, &[
        ("direnv", "https://direnv.net", &[".envrc"]),
    ]),
    class(MISE, Protection::Full, &[
        ("mise", "https://mise.jdx.dev/configuration.html", &[".config/mise", ".config/mise.toml", ".mise", ".mise.local.toml", ".mise.toml", "mise.local.toml", "mise.toml", "mise/config.local.toml", "mise/config.toml"]),
    ]),
    class(VERSION_CONTROL, Protection::Full, &[
        ("Mercurial", "https://www.mercurial-scm.org/doc/hgrc.5.html", &[".hg/hgrc", ".hg/hgrc-not-shared", ".hg/sharedpath"]),
        ("Sapling", "https://sapling-scm.com/docs/introduction/getting-started", &[".sl/config"]),
        ("Jujutsu", "https://docs.jj-vcs.dev/latest/config", &[".jj/repo/config.toml"]),
    ]),
    class(HOOKS, Protection::Full, &[
        ("Husky", "https://typicode.github.io/husky/how-to.html", &[".husky"]),
        ("`core.hooksPath`", "https://git-scm.com/docs/githooks", &[".githooks"]),
        ("pre-commit", "https://pre-commit.com", &[".pre-commit-config.yaml"]),
        ("Lefthook", "https://lefthook.dev/configuration", &[
            ".config/lefthook-local.json", ".config/lefthook-local.jsonc", ".config/lefthook-local.toml", ".config/lefthook-local.yaml",
            ".config/lefthook-local.yml", ".config/lefthook.json", ".config/lefthook.jsonc", ".config/lefthook.toml", ".config/lefthook.yaml",
            ".config/lefthook.yml", ".lefthook", ".lefthook-local", ".lefthook-local.json", ".lefthook-local.jsonc", ".lefthook-local.toml",
            ".lefthook-local.yaml", ".lefthook-local.yml", ".lefthook.json", ".lefthook.jsonc", ".lefthook.toml", ".lefthook.yaml",
            ".lefthook.yml", "lefthook-local.json", "lefthook-local.jsonc", "lefthook-local.toml", "lefthook-local.yaml",
            "lefthook-local.yml", "lefthook.json", "lefthook.jsonc", "lefthook.toml", "lefthook.yaml", "lefthook.yml",
        ]),
    ]),
    class(CI, Protection::TopFolder, &[
        ("GitHub Actions", "https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-syntax", &[".github/actions", ".github/workflows"]),
        ("Gitea", "https://docs.gitea.com/usage/actions/overview", &[".gitea/workflows"]),
        ("Forgejo", "https://forgejo.org/docs/latest/user/actions", &[".forgejo/workflows"]),
        ("AppVeyor", "https://www.appveyor.com/docs/build-configuration", &[".appveyor.yml", "appveyor.yml"]),
        ("AWS CodeBuild", "https://docs.aws.amazon.com/codebuild/latest/userguide/build-spec-ref.html", &["buildspec.yml"]),
        ("Azure Pipelines", "https://learn.microsoft.com/en-us/azure/devops/pipelines", &["azure-pipelines.yaml", "azure-pipelines.yml"]),
        ("Bitbucket", "https://support.atlassian.com/bitbucket-cloud/docs/bitbucket-pipelines-configuration-reference", &["bitbucket-pipelines.yml"]),
        ("Bitrise", "https://devcenter.bitrise.io", &["bitrise.yml"]),
        ("Buildkite", "https://buildkite.com/docs/agent/v3/cli-pipeline", &[".buildkite", "buildkite.json", "buildkite.yaml", "buildkite.yml", "buildkite/pipeline.json", "buildkite/pipeline.yaml", "buildkite/pipeline.yml"]),
        ("CircleCI", "https://circleci.com/docs/configuration-reference", &[".circleci"]),
        ("Cirrus CI", "https://cirrus-ci.org/guide/programming-tasks", &[".cirrus.star", ".cirrus.yaml", ".cirrus.yml"]),
        ("Codemagic", "https://docs.codemagic.io/yaml-basic-configuration/yaml-getting-started", &["codemagic.yaml"]),
        ("Drone", "https://docs.drone.io/pipeline/scripting/starlark", &[".drone.jsonnet", ".drone.star", ".drone.yml"]),
        ("GitLab", "https://docs.gitlab.com/ci/yaml", &[".gitlab-ci.yml"]),
        ("Gitpod", "https://www.gitpod.io/docs/classic/user/references/gitpod-yml", &[".gitpod.yml"]),
        ("Google Cloud Build", "https://cloud.google.com/build/docs/build-config-file-schema", &["cloudbuild.json", "cloudbuild.yaml", "cloudbuild.yml"]),
        ("Harness", "https://developer.harness.io/docs", &[".harness"]),
        ("Jenkins", "https://www.jenkins.io/doc/book/pipeline/jenkinsfile", &["Jenkinsfile"]),
        ("Netlify", "https://docs.netlify.com/build/configure-builds/file-based-configuration", &["netlify.toml"]),
        ("Read the Docs", "https://docs.readthedocs.com/platform/stable/config-file/v2.html", &[".readthedocs.yaml", ".readthedocs.yml", "readthedocs.yaml", "readthedocs.yml"]),
        ("Semaphore", "https://docs.semaphore.io", &[".semaphore"]),
        ("sourcehut", "https://man.sr.ht/builds.sr.ht", &[".build.yml", ".builds"]),
        ("TeamCity", "https://www.jetbrains.com/help/teamcity/kotlin-dsl.html", &[".teamcity"]),
        ("Tekton", "https://pipelinesascode.com/docs", &[".tekton"]),
        ("Travis CI", "https://docs.travis-ci.com", &[".travis.yml"]),
        ("Wercker", "https://devcenter.wercker.com", &["wercker.yml"]),
        ("Woodpecker", "https://woodpecker-ci.org/docs/usage/workflow-syntax", &[".woodpecker", ".woodpecker.yaml", ".woodpecker.yml"]),
        ("Zuul", "https://zuul-ci.org/docs/zuul/latest/project-config.html", &[".zuul.d", ".zuul.yaml", "zuul.d", "zuul.yaml"]),
    ]),
    class(PYTHON, Protection::Full, &[
        ("Python", "https://docs.python.org/3/library/venv.html", &[".venv/bin", ".venv/pyvenv.cfg", ".venv/Scripts"]),
        ("conda", "https://docs.conda.io/projects/conda/en/stable/user-guide/tasks/manage-environments.html", &[".conda/bin", ".conda/etc/conda/activate.d"]),
        ("pixi", "https://pixi.sh/latest/workspace/environment/", &[".pixi/envs/default/bin", ".pixi/envs/default/etc/conda/activate.d"]),
    ]),
    class(CARGO, Protection::Full, &[
        ("Cargo", "https://doc.rust-lang.org/cargo/reference/config.html", &[".cargo/config", ".cargo/config.toml"]),
    ]),
    class(SHELLS, Protection::Full, &[
        ("Bash", "https://www.gnu.org/software/bash/manual/html_node/Bash-Startup-Files.html", &[".bash_login", ".bash_logout", ".bash_profile", ".bashrc", ".profile"]),
        ("zsh", "https://zsh.sourceforge.io/Doc/Release/Files.html", &[".zlogin", ".zprofile", ".zshenv", ".zshrc"]),
        ("csh, ksh", "https://man.archlinux.org/man/tcsh.1", &[".cshrc", ".kshrc", ".tcshrc"]),
        ("fish", "https://fishshell.com/docs/current/language.html#configuration-files", &[".config/fish"]),
        ("git", "https://git-scm.com/docs/git-config#FILES", &[".config/git", ".gitconfig"]),
        ("ssh", "https://man.openbsd.org/ssh_config", &[".ssh"]),
        ("desktops", "https://specifications.freedesktop.org/autostart-spec/latest", &[".config/autostart", ".config/systemd", ".xinitrc", ".xprofile"]),
        ("GDB", "https://sourceware.org/gdb/current/onlinedocs/gdb.html/Startup.html", &[".gdbearlyinit", ".gdbinit"]),
        ("LLDB", "https://lldb.llvm.org/man/lldb.html", &[".lldbinit"]),
        ("GHCi", "https://downloads.haskell.org/ghc/latest/docs/users_guide/ghci.html#the-ghci-and-haskeline-files", &[".ghci"]),
        ("IEx", "https://hexdocs.pm/iex/IEx.html#module-the-iex-exs-file", &[".iex.exs"]),
        ("OCaml", "https://ocaml.org/manual/latest/toplevel.html", &[".ocamlinit"]),
        ("Octave", "https://docs.octave.org/latest/Startup-Files.html", &[".octaverc"]),
        ("pdb", "https://docs.python.org/3/library/pdb.html", &[".pdbrc"]),
        ("PsySH", "https://github.com/bobthecow/psysh/wiki/Configuration", &[".psysh.php"]),
        ("R", "https://stat.ethz.ch/R-manual/R-devel/library/base/html/Startup.html", &[".Renviron", ".Rprofile"]),
        ("Ruby", "https://docs.ruby-lang.org/en/master/IRB.html", &[".irbrc", ".pryrc"]),
    ]),
    class(EDITORS, Protection::Windows, &[
        ("Vim", "https://vimhelp.org/starting.txt.html", &["_exrc", "_gvimrc", "_vimrc"]),
    ]),
    class(SHELLS, Protection::Windows, &[
        ("PowerShell", "https://learn.microsoft.com/en-us/powershell/module/microsoft.powershell.core/about/about_profiles", &["Documents/PowerShell", "Documents/WindowsPowerShell"]),
        ("Windows", "https://learn.microsoft.com/en-us/windows/win32/shell/csidl", &["Start Menu/Programs/Startup"]),
    ]),
    class(TOOLCHAIN, Protection::Content(harmless::rust_toolchain), &[
        ("rustup", "https://rust-lang.github.io/rustup/overrides.html#the-toolchain-file", &["rust-toolchain", "rust-toolchain.toml"]),
    ]),
    class(TOOLCHAIN, Protection::Content(harmless::tool_versions), &[
        ("asdf, mise", "https://asdf-vm.com/manage/configuration.html#tool-versions", &[".tool-versions"]),
    ]),
    class(TOOLCHAIN, Protection::Content(harmless::python_version), &[
        ("uv, pyenv", "https://docs.astral.sh/uv/concepts/python-versions/#python-version-files", &[".python-version", ".python-versions"]),
    ]),
    class(TOOLCHAIN, Protection::Content(harmless::versions), &[
        ("mise", "https://mise.jdx.dev/configuration.html#idiomatic-version-files", &[IDIOMATIC_VERSION_FILES]),
    ]),
    class(TOOLCHAIN, Protection::Content(harmless::pdm_python), &[
        ("PDM", "https://pdm-project.org/latest/usage/venv", &[".pdm-python"]),
    ]),
    class(TOOLCHAIN, Protection::Content(harmless::never), &[
        ("PDM 2.4 and older", "https://github.com/pdm-project/pdm/blob/main/src/pdm/cli/commands/fix/fixers.py", &[".pdm.toml"]),
        ("Corepack", "https://github.com/nodejs/corepack#environment-variables", &[".corepack.env"]),
    ]),
    class(PACKAGES, Protection::Content(harmless::yarnrc_yml), &[
        ("Yarn", "https://yarnpkg.com/configuration/yarnrc", &[".yarnrc.yml"]),
    ]),
    class(PACKAGES, Protection::Content(harmless::yarnrc), &[
        ("Yarn Classic", "https://classic.yarnpkg.com/en/docs/yarnrc", &[".yarnrc"]),
    ]),
    class(PACKAGES, Protection::Content(harmless::npmrc), &[
        ("npm, pnpm", "https://docs.npmjs.com/cli/using-npm/config", &[".npmrc"]),
    ]),
    class(PACKAGES, Protection::Content(harmless::pnpm_workspace), &[
        ("pnpm", "https://pnpm.io/settings", &["pnpm-workspace.yaml"]),
    ]),
    class(PACKAGES, Protection::Content(harmless::never), &[
        ("pnpm", "https://pnpm.io/pnpmfile", &[".pnpmfile.cjs", ".pnpmfile.mjs"]),
    ]),
    class(EDITORS, Protection::Content(harmless::luarc), &[
        ("LuaLS", "https://luals.github.io/wiki/settings", &[".luarc.json", ".luarc.jsonc"]),
    ]),
    class("agents do what it says", Protection::FileTools, &[
        ("Claude Code", "https://code.claude.com/docs/en/memory", &["CLAUDE.local.md", "CLAUDE.md"]),
        ("Cline", "https://docs.cline.bot/customization/cline-rules", &[".clinerules"]),
        ("Codex", "https://developers.openai.com/codex/guides/agents-md", &["AGENTS.override.md"]),
        ("Copilot", "https://docs.github.com/en/copilot/how-tos/configure-custom-instructions", &[".github/agents", ".github/chatmodes", ".github/copilot-instructions.md", ".github/instructions", ".github/prompts"]),
        ("Cursor", "https://cursor.com/docs/context/rules", &[".cursorrules"]),
        ("Gemini CLI", "https://geminicli.com/docs/cli/gemini-md", &["GEMINI.md"]),
        ("Goose", "https://block.github.io/goose/docs/guides/context-engineering/using-goosehints", &[".goosehints"]),
        ("Junie", "https://www.jetbrains.com/help/junie/customize-guidelines.html", &[".junie"]),
        ("Windsurf", "https://docs.windsurf.com/windsurf/cascade/memories", &[".windsurfrules"]),
        ("Zed", "https://zed.dev/docs/ai/rules", &[".rules"]),
        ("several agents", "https://agents.md", &["AGENT.md", "AGENTS.md"]),
    ]),
];

/// The folder that makes its folder an environment of conda.
const CONDA_FOLDER: &str = "conda-meta";

/// Where an environment of conda has scripts that shells run when it is activated and left.
const CONDA_SCRIPTS: [&str; 2] = ["etc/conda/activate.d", "etc/conda/deactivate.d"];

/// Usual names of environments besides `.venv`, in lower case. Others are told from their file alone.
const ENVIRONMENTS: &[&str] = &["venv", "env", "virtualenv", ".conda"];

/// Returns true if a part of a path may be one that is looked for in environments. All protected paths are checked, and
/// most are rejected here.
pub(super) fn may_be_of_environment(name: &OsStr) -> bool {
    let name = without_end(name);
    !name.is_ascii()
        || ENVIRONMENT_PROGRAMS
            .iter()
            .chain(&[ENVIRONMENT_FILE])
            .any(|file| file.as_bytes().eq_ignore_ascii_case(name))
}

/// Returns true if a folder is named `.venv`.
pub(super) fn is_venv(folder: &Path) -> bool {
    part(folder.file_name().unwrap_or_default()) == ".venv"
}

/// Returns true for `.conda` and `.pixi/envs/NAME`.
pub(super) fn is_of_conda(folder: &Path) -> bool {
    let parts = parts(folder);
    let last_parts: Vec<_> = parts.iter().rev().take(3).map(String::as_str).collect();
    matches!(last_parts.as_slice(), [".conda", ..] | [_, "envs", ".pixi"])
}

/// Returns true for the programs of a folder that is an environment by what is in it, and for the scripts with which
/// shells activate an environment of conda.
pub(super) fn is_in_known_environment(path: &Path, root: Option<&PathBuf>) -> bool {
    let is_there = |folder: &Path, name: &str| folder.join(name).symlink_metadata().is_ok();
    let mut below = path.ancestors().take_while(|folder| root.is_some_and(|root| folder != root));
    below.any(|folder| {
        let name = folder.file_name().unwrap_or_default();
        if !may_be_of_environment(name) && !name.to_string_lossy().ends_with("activate.d") {
            return false;
        }
        CONDA_SCRIPTS.iter().any(|scripts| folder.ends_with(scripts))
            || folder.parent().is_some_and(|environment| {
                is_there(environment, ENVIRONMENT_FILE)
                    || is_there(environment, CONDA_FOLDER)
                    || is_of_conda(environment)
            })
    })
}

/// Returns true if a path is, or may be, a part of a virtual environment that programs of the user run: its file, its
/// programs if it has one of the usual names, and in any folder those that start it.
pub(super) fn is_in_environment(parts: &[String]) -> bool {
    let mut places =
        (1..parts.len()).filter(|at| ENVIRONMENT_PROGRAMS.contains(&parts[*at].as_str()));
    parts.last().is_some_and(|part| part == ENVIRONMENT_FILE)
        || places.any(|at| {
            ENVIRONMENTS.contains(&parts[at - 1].as_str())
                || parts.get(at + 1).is_some_and(|part| starts_environment(part))
        })
}

fn starts_environment(name: &str) -> bool {
    let (stem, end) = name.split_once('.').unwrap_or((name, ""));
    let is_script = ["", "sh", "fish", "csh", "nu", "bat", "ps1", "xsh"].contains(&end);
    let python_version = name.trim_end_matches(".exe").strip_prefix("python");
    stem == "activate" && is_script
        || name == "activate_this.py"
        || python_version.is_some_and(|version| {
            version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        })
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use expect_test::expect_file;

    use super::super::ProtectedPaths;
    use super::*;

    const TITLE: &str = "# List of protected files

The files that [are protected](permissions.md#protected-files), with the reason that a question shows, and where their program says what it does with them. Names
apply in every folder, regardless of case, and cover everything below them. Also protected are git's own files, virtual environments under other names, and what the settings add.

<!-- Written by a test of `crates/turnwright-policy/src/permission/protected_paths/files.rs`. -->
";

    fn title_of(protection: Protection) -> &'static str {
        match protection {
            Protection::Full => "Nothing changes them without a question",
            Protection::TopFolder => "The same, but commands may make them in subfolders",
            Protection::Windows => "On Windows only",
            Protection::Content(_) => "Commands may change them while the content is harmless",
            Protection::FileTools => "Commands may change them, file tools ask",
        }
    }

    /// The page of the documentation with the table.
    fn page() -> String {
        let mut page = TITLE.to_owned();
        let all = || CLASSES.iter().map(|class| title_of(class.protection));
        let mut titles: Vec<_> = all().collect();
        titles.sort_by_key(|title| all().position(|other| other == *title));
        titles.dedup();
        for title in titles {
            write!(page, "\n## {title}\n\n| file | of | reason |\n|---|---|---|\n").unwrap();
            if title == title_of(Protection::Full) {
                for (start, end, reason) in NAME_FORMS {
                    writeln!(page, "| `{start}*{end}` | | {reason} |").unwrap();
                }
            }
            for class in CLASSES.iter().filter(|class| title_of(class.protection) == title) {
                for program in class.programs {
                    let (name, source, _) = program;
                    for file in files_of(program) {
                        let reason = class.reason;
                        writeln!(page, "| `{file}` | [{name}]({source}) | {reason} |").unwrap();
                    }
                }
            }
        }
        page
    }

    #[test]
    fn the_documentation_lists_what_is_protected() {
        expect_file!["../../../../../docs/protected-files.md"].assert_eq(&page());
    }

    #[test]
    fn every_row_is_usable() {
        let mut files: Vec<&str> = Vec::new();
        for class in CLASSES {
            for program in class.programs {
                let (name, source, _) = program;
                assert!(source.starts_with("https://") || *source == "configuration.md", "{name}");
                files.extend(files_of(program));
            }
        }
        for file in &files {
            let is_plain =
                |part: &str| !part.is_empty() && part.trim_end_matches(['.', ' ']) == part;
            assert!(file.is_ascii() && file.split('/').all(is_plain), "{file}");
            let same = files.iter().filter(|other| other.eq_ignore_ascii_case(file));
            assert_eq!(same.count(), 1, "{file} is there twice");
        }
        for class in
            CLASSES.iter().filter(|class| matches!(class.protection, Protection::Content(_)))
        {
            assert!(class.files().all(|file| !file.contains('/')), "judged by the name alone");
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
    fn programs_of_an_environment_are_protected_whatever_its_name_is() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_path_buf();
        for (file, program, expected) in [
            ("py3/pyvenv.cfg", "py3/bin/ruff", true),
            ("py3/pyvenv.cfg", "py3/bin", true),
            ("py4/pyvenv.cfg", "py4/Scripts/pip.exe", true),
            ("forge/conda-meta/history", "forge/bin/git", true),
            ("tools/x", "tools/bin/ruff", false),
            ("py3/pyvenv.cfg", "py3/lib/x.py", false),
        ] {
            std::fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            std::fs::write(root.join(file), "").unwrap();
            let protected = ProtectedPaths::new(vec![root.clone()], Vec::new());
            assert_eq!(protected.reason(&root.join(program)).is_some(), expected, "{program}");
        }
    }
}
