//! Programs that build, check, package and publish projects.

use crate::shell::OperandUse;
use crate::shell::Word;
use crate::shell::args::{Args, FilesRead, first_operand, operands};
use crate::shell::prefix::{Grant, form};

use super::{NetworkUse, Program, WordList, is_in, names_subcommand, program};
use crate::shell::harm::{DATA, Danger, PUBLISHES, has_operands_in_order, has_word};

/// Tasks of web frameworks.
pub(super) const DATABASE_TASKS: &[Danger] = &[Danger::Word(
    "db:drop db:migrate:reset db:migrate:undo:all db:purge db:reset db:schema:load db:wipe doctrine:database:drop \
     doctrine:fixtures:load ecto.drop ecto.reset migrate:fresh migrate:refresh migrate:reset migrate:rollback schema:drop",
    DATA,
)];
const JVM: &[Danger] = &[Danger::Prefix("publish", PUBLISHES), Danger::Word("deploy", PUBLISHES)];

const TOOL: Program = program("").grant(Grant::GuessedTool).runs_files();
/// Its name alone says enough.
const CHECKER: Program = program("").grant(Grant::Name).runs_files();

const MAKE: Program = program("").runs_tasks().takes_variables().options_outside_grant(
    "fCIE --file --makefile --directory --include-dir --eval --shell --justfile \
     --working-directory --set --command --dotenv-path --chooser",
);
const TASKS: Program = program("").runs_tasks().options_outside_grant(
    "fgDcH --gulpfile --gruntfile --cwd --base --require --taskfile --dir --collection --search-root \
     --buildfile --lib --listener --logger --file --config",
);
/// It runs what is named after one of its words, in an environment that it prepares.
const ENVIRONMENT: Program = PUBLISHER.searched().grantable_prefixes(&[]);
const JS_TEST: Program = CHECKER.options_outside_grant(
    "cr --config --globalSetup --globalTeardown --setupFiles --setupFilesAfterEnv --runner \
     --testRunner --transform --resolver --reporters --reporter --require --loader --import \
     --rootDir --root --environment --outputFile --node-option --spec --exec-argv --projects --env \
     --testEnvironment --filter --preset --testSequencer --testResultsProcessor --file --ui --package \
     --node-arguments --moduleNameMapper --modulePaths --moduleDirectories --snapshotSerializers --globals",
);
/// Also with letters that mean something else to the other test runners.
const MOCHA: &str = "cruR --config --require --reporter --ui --file --spec --package --node-option --loader --import \
    --extension";
const PYTHON_LINT: Program = CHECKER.options_outside_grant(
    "--load-plugins --init-hook --install-types --python-executable --config-file< --config< \
     --rcfile< --cache-dir< --settings-path< --append-config< --output-file --output",
);
const FORMATTER: Program = CHECKER.options_outside_grant("r --config --config-path --style");

/// A package manager for Node.js.
const NODE: Program = program("")
    .dangers(&[Danger::Check(publishes_package)])
    .offline_words("--offline exec init")
    .options_outside_grant(
        // The scripts of another package are other scripts.
        "CwFr --prefix --script-shell --node-options --userconfig --globalconfig --global --shell \
     --cwd --dir --shell-emulator --scripts-prepend-node-path --git --node-arg --preload \
     --require --config --pnpmfile --global-pnpmfile --workspace-dir --workspace --workspaces --filter \
     --recursive --include-workspace-root",
    );
/// It runs a package from the network, or from the project.
const RUNNER: Program = program("").network(NetworkUse::Always).searched().grantable_prefixes(&[]);
const RELEASE: &[Danger] = &[Danger::Always(PUBLISHES)];
const PUBLISHER: Program = program("").dangers(&[Danger::Subcommand("publish", PUBLISHES)]);

const fn installer(names: &'static str, subcommands: &'static str) -> Program {
    program(names).network(NetworkUse::Subcommand(subcommands))
}

pub(super) const PROGRAMS: &[Program] = &[
    MAKE.with_names("make").version("--version").grantable_prefixes(&[form("", 2)]),
    MAKE.with_names("just").grantable_prefixes(&[form("", 2)]),
    MAKE.with_names("gmake"),
    TASKS.with_names("gulp grunt invoke inv task ant sbt doit").grantable_prefixes(&[form("", 2)]),
    TOOL.with_names("rake").dangers(DATABASE_TASKS).runs_tasks().options_outside_grant(
        "feErRpgIC --rakefile --execute --execute-continue --execute-print --require --libdir \
         --rakelibdir --system --directory",
    ),
    program("ninja")
        .runs_tasks()
        .options_outside_grant("fCt")
        .task_options_with_value("-k -d -w"),
    program("gradle")
        .runs_tasks()
        .dangers(JVM)
        .options_outside_grant(
            "IPDg --init-script --project-prop --system-prop --gradle-user-home --include-build \
             -b< -c< -p< --build-file< --settings-file< --project-dir<",
        )
        .task_options_with_value("--tests -x --exclude-task --max-workers")
        .grantable_prefixes(&[form(
            "test build check assemble clean lint classes compileJava compileKotlin",
            2,
        )]),
    program("gradlew mvnw").dangers(JVM),
    program("mvn")
        .runs_tasks()
        .dangers(JVM)
        .options_outside_grant("D --settings --global-settings --toolchains -f< --file<")
        .task_options_with_value("-pl --projects -T --threads")
        .grantable_prefixes(&[form("test compile package verify clean validate", 2)]),
    program("cmake")
        .version("--version")
        .options_outside_grant("PEC --toolchain --install --open -B< -S<")
        .grantable_prefixes(&[]),
    program("artisan knex rails typeorm").dangers(DATABASE_TASKS),
    program("console sail sequelize sequelize-cli").grant(Grant::Exact).dangers(DATABASE_TASKS),
    program("prisma").dangers(&[
        Danger::InOrder("migrate reset", DATA),
        Danger::Word("--force-reset --accept-data-loss", DATA),
    ]),
    program("drizzle-kit").grant(Grant::Exact).dangers(&[Danger::Word("--force", DATA)]),
    program("alembic dbmate diesel django-admin flask flyway goose manage.py migrate sqlx wp")
        .grant(Grant::Exact)
        .dangers(&[Danger::Word("clean downgrade drop flush reset reset_db rollback", DATA)]),
    CHECKER.with_names("pytest py.test").options_outside_grant(
        "cpoW --config-file --pythonwarnings --rootdir --confcutdir --override-ini --pastebin --tx --rsyncdir --cov-config \
         --pdbcls --ds --basetemp< \
         --junitxml< --junit-xml< --log-file<",
    ),
    CHECKER.with_names("eslint").options_outside_grant(
        "fo --rulesdir --plugin --parser --resolve-plugins-relative-to --output-file --format \
         --init -c< --config< --cache-location<",
    ),
    CHECKER
        .with_names("prettier")
        .options_outside_grant("--plugin --plugin-search-dir --config< --cache-location<"),
    JS_TEST.with_names("jest ava"),
    JS_TEST.with_names("mocha").options_outside_grant(MOCHA),
    JS_TEST.with_names("vitest").grant(Grant::GuessedTool),
    CHECKER.with_names("tsc").version("-v --version").options_outside_grant(
        "--outDir< --outFile< --declarationDir< --rootDir< -p< --project< --build< \
         --tsBuildInfoFile<",
    ),
    PYTHON_LINT.with_names("mypy black isort flake8 pylint"),
    PYTHON_LINT
        .with_names("ruff")
        .options_outside_grant("o --config< --cache-dir< --output-file")
        .version("--version")
        .grant(Grant::GuessedTool),
    FORMATTER
        .with_names("rustfmt")
        .version("--version")
        .rustup_proxy()
        .operand_use(OperandUse::Changes),
    FORMATTER
        .with_names("gofmt clang-format shfmt")
        .version("--version")
        .operand_use(OperandUse::Formats),
    program("golangci-lint").options_outside_grant("c --config --path-prefix"),
    CHECKER.with_names("phpunit").options_outside_grant(
        "cd --bootstrap --configuration --include-path --extension --printer --prepend --extensions-dir",
    ),
    CHECKER
        .with_names("rspec rubocop")
        .options_outside_grant("rIoO --require --options --out --config --default-path"),
    CHECKER
        .with_names("clippy-driver oxlint phpstan pyright shellcheck stylelint vue-tsc")
        .options_outside_grant(
            "ac --autoload-file --config --configuration --custom-formatter --custom-syntax --formatter \
             --plugins --pythonpath",
        ),
    TOOL.with_names("biome unittest"),
    program("rustc").version("-V --version").rustup_proxy(),
    program("rustdoc cargo-clippy cargo-fmt").rustup_proxy(),
    program("javac").version("-version --version"),
    program("cc clang g++ gcc")
        .version("--version")
        .options_outside_grant("-wrapper --wrapper -specs --specs -fplugin -o< -B")
        .grant(Grant::Exact),
    NODE.with_names("npm")
        .version("-v --version")
        .network(NetworkUse::Subcommand(
            "install i ci add update up upgrade publish view info show audit outdated search exec \
             create init login ping dedupe",
        ))
        .grantable_prefixes(&[
            form("test t start stop ls list", 2),
            form("run run-script", 3),
        ]),
    NODE.with_names("pnpm")
        .network(NetworkUse::Subcommand(
            "install i add update up publish view audit outdated dlx create fetch",
        ))
        .grantable_prefixes(&[form("test t start ls list", 2), form("run", 3)])
        .runs_installed_after(&["exec", ""]),
    NODE.with_names("yarn")
        .network(NetworkUse::Check(yarn_needs_network))
        .grantable_prefixes(&[
            form("test start build lint check typecheck format", 2),
            form("run", 3),
        ])
        .runs_installed_after(&[""]),
    NODE.with_names("bun")
        .network(NetworkUse::Subcommand("install i add update x create publish"))
        .grantable_prefixes(&[form("test build", 2), form("run", 3)]),
    RUNNER
        .with_names("npx")
        .options_outside_grant(NODE.options_outside_grant)
        .runs_installed_after(&[""]),
    RUNNER.with_names("bunx uvx").runs_installed_after(&[""]),
    RUNNER.with_names("pnpx"),
    installer("deno", "install add cache")
        .dangers(PUBLISHER.dangers)
        .version("--version")
        .options_outside_grant(
            "Ac --allow-all --allow-run --allow-write --allow-ffi --config --import-map --preload --require",
        )
        .grantable_prefixes(&[form("test fmt lint check", 2), form("task", 3)]),
    installer("pip pip3", "install download search index wheel")
        .version("-V --version")
        .offline_words("--no-index")
        .grantable_prefixes(&[]),
    PUBLISHER
        .with_names("uv")
        .version("--version")
        .network(NetworkUse::Subcommand("sync add lock pip tool publish venv"))
        .offline_words("--offline --no-index venv list show freeze check tree uninstall dir")
        .searched()
        .runs_installed_after(&["run"])
        .grantable_prefixes(&[]),
    PUBLISHER
        .with_names("poetry")
        .network(NetworkUse::Subcommand("install add update lock publish"))
        .searched()
        .runs_installed_after(&["run"])
        .grantable_prefixes(&[form("check show build", 2)]),
    PUBLISHER.with_names("flit jsr maturin vsce ovsx"),
    PUBLISHER.with_names("changeset lerna").grant(Grant::Exact),
    program("release-it semantic-release").grant(Grant::Exact).dangers(RELEASE),
    PUBLISHER.with_names("hatch").searched().runs_installed_after(&["run"]),
    ENVIRONMENT.with_names("pdm pixi rye").grant(Grant::Guessed).runs_installed_after(&["run"]),
    ENVIRONMENT.with_names("dotenv doppler foreman honcho overmind coverage direnv mise asdf"),
    program("twine")
        .dangers(&[Danger::Subcommand("upload", PUBLISHES)])
        .network(NetworkUse::Always)
        .offline_words("check"),
    program("pipx").network(NetworkUse::Always).offline_words("list run uninstall"),
    installer("pipenv", "install sync update lock").searched().runs_installed_after(&["run"]),
    installer("conda", "install create update search").searched(),
    program("cargo")
        .version("-V --version")
        .rustup_proxy()
        .dangers(&[Danger::Subcommand("owner yank", PUBLISHES), Danger::Check(publishes_package)])
        .network(NetworkUse::Subcommand(
            "add install update publish fetch search login yank owner info",
        ))
        .offline_words("--offline --frozen --path")
        .options_outside_grant(
            "ZC --config --manifest-path< --target-dir< --artifact-dir< --out-dir< \
             --lockfile-path< --root< --path< --config-file --tool-config-file",
        )
        .grantable_prefixes(&[form(
            "build b check c test t clippy fmt doc d bench run r tree metadata clean nextest \
             llvm-cov deny audit machete",
            2,
        )]),
    installer("rustup", "update install toolchain component target")
        .offline_words("list remove uninstall link")
        .grantable_prefixes(&[]),
    program("go")
        .version("version")
        .network(NetworkUse::Check(go_needs_network))
        .options_outside_grant(
            "-exec --exec -toolexec --toolexec -overlay --overlay -modfile --modfile -vettool \
             --vettool -C -ldflags --ldflags -gcflags --gcflags -asmflags -gccgoflags -o< --o<",
        )
        .runs_files()
        .grantable_prefixes(&[form("test build vet fmt list version doc env", 2), form("mod", 3)])
        .reads_if(go)
        .subcommands(&[program("env").options_outside_grant("wu")]),
    installer("gem", "install update push fetch search")
        .offline_words("--local")
        .dangers(&[Danger::Subcommand("owner push yank", PUBLISHES)])
        .grantable_prefixes(&[]),
    installer("bundle", "install update add outdated")
        .offline_words("--local")
        .searched()
        .runs_installed_after(&["exec"])
        .grantable_prefixes(&[]),
    installer("composer", "install update require create-project")
        .options_outside_grant("d --working-dir"),
    installer("dotnet", "restore add nuget")
        .offline_words("reference list locals")
        .dangers(&[Danger::InOrder("nuget push", PUBLISHES)])
        .options_outside_grant(
            "--property --logger --settings --collect --test-adapter-path --diag -o< --output< p: \
             property: t: target: l: logger: dl: distributedLogger:",
        )
        .runs_files()
        .grantable_prefixes(&[form("test build format clean", 2)]),
    installer("mix", "deps.get hex.info")
        .runs_files()
        .options_outside_grant("r --require --formatter --plugin")
        .dangers(DATABASE_TASKS)
        .grantable_prefixes(&[form("test compile format", 2)]),
    installer("flutter", "pub upgrade").dangers(&[Danger::InOrder("pub publish", PUBLISHES)]),
    installer("swift", "package")
        .offline_words("init describe dump-package clean reset")
        .runs_files()
        .options_outside_grant(
            "--package-path< -Xswiftc -Xcc -Xcxx -Xlinker -Xbuild-tools-swiftc --toolset --toolchain \
             --disable-sandbox --allow-writing-to-package-directory --allow-network-connections",
        )
        .grantable_prefixes(&[form("build test", 2)]),
    installer("pod", "install update").dangers(&[Danger::InOrder("trunk push", PUBLISHES)]),
    installer("apt apt-get dnf yum", "install update upgrade full-upgrade dist-upgrade download"),
    installer("apk", "add update upgrade"),
    installer("pacman", "-S -Sy -Syu"),
    installer("zypper", "install in update up"),
    installer("brew", "install update upgrade tap fetch search"),
];

/// The operands with which `yarn npm`, `yarn workspace`, `pnpm recursive` and `cargo workspaces` publish, in order.
const PUBLISHING: [&str; 5] =
    ["npm publish", "workspace publish", "recursive publish", "workspaces publish", "ws publish"];

/// Publishing, and changing who may publish or which version a tag installs.
fn publishes_package(words: Args<'_>) -> Option<&'static str> {
    let published = names_subcommand(words, "deprecate publish unpublish")
        || PUBLISHING.iter().any(|in_order| has_operands_in_order(words, in_order))
        || names_subcommand(words, "access author dist-tag dist-tags npm owner tag")
            && has_word(words, "a add d del grant r remove revoke rm s set");
    published.then_some(PUBLISHES)
}

/// Without arguments it installs.
fn yarn_needs_network(words: Args<'_>) -> bool {
    let known = "add install up upgrade publish info audit outdated dlx create";
    words.is_empty() || names_subcommand(words, known)
}

fn go_needs_network(words: Args<'_>) -> bool {
    if first_operand(words) == "mod" {
        return operands(words).nth(1).is_some_and(|word| is_in("download tidy get", &word.text));
    }
    // A path without a version is a package of the module.
    names_subcommand(words, "get")
        || names_subcommand(words, "install") && words.iter().any(|word| word.text.contains('@'))
}

/// `go env` with the names of variables, and without `-w` and `-u`. For the flags of the C compiler, which are among
/// all variables, it makes a temporary folder.
fn go(words: &[Word]) -> FilesRead {
    const NEED_A_FOLDER: WordList =
        "CGO_CFLAGS CGO_CPPFLAGS CGO_CXXFLAGS CGO_FFLAGS CGO_LDFLAGS GOGCCFLAGS PKG_CONFIG";
    let (_, words) = words.split_first().filter(|words| words.0.text == "env")?;
    let mut names =
        words.iter().map(|word| word.text.as_str()).filter(|name| *name != "-json").peekable();
    names.peek()?;
    names.all(|name| is_variable(name) && !is_in(NEED_A_FOLDER, name)).then(Vec::new)
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| matches!(byte, b'A'..=b'Z' | b'0'..=b'9' | b'_'))
}
