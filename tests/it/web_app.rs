//! A typical session of sixty commands of a web project: in `auto` mode there are at most two permission
//! requests, for commands that need the network.

use serde_json::{Value, json};
use turnwright_testing::cards::{self, call};
use turnwright_testing::process_waits;

use crate::agent::{TestAgent, says};

/// The commands in the order in which they run. `+` marks those for which the model requests the network.
const COMMANDS: &[&str] = &[
    "pwd && ls -la",
    "cat package.json",
    "node --version && npm --version",
    "git status",
    "git log --oneline | head -5",
    "ls src public 2>/dev/null",
    "cat src/index.js",
    "grep -rn 'TODO' src",
    "rg -n 'listen' src",
    "find . -name '*.js' -not -path './node_modules/*'",
    "wc -l src/*.js",
    "mkdir -p src/routes src/views test",
    "+npm install express",
    "npm ls --depth=0",
    "cat > src/app.js <<'EOF'\nconst express = require('express');\nmodule.exports = express();\nEOF",
    "node -e \"console.log(1 + 1)\"",
    "npm run lint",
    "npm run lint -- --fix",
    "npx tsc --noEmit",
    "npm test",
    "npm test -- --watch=false 2>&1 | tail -40",
    "NODE_ENV=test npm run test:unit",
    "npm run build",
    "ls -la dist && du -sh dist",
    "cp src/index.js src/old.js",
    "mv src/old.js src/older.js",
    "rm src/older.js",
    "sed -n '1,20p' src/index.js",
    "sed -i 's/3000/8080/' src/index.js",
    "git diff",
    "git diff --stat",
    "git add -A && git commit -q -m 'routes'",
    "git checkout -q -b feature",
    "git branch --show-current",
    "git show --stat HEAD",
    "for f in src/*.js; do echo \"$f\"; done",
    "echo 'PORT=8080' > port.txt",
    "echo 'dist' >> .gitignore",
    "cat port.txt | tr a-z A-Z",
    "sort .gitignore | uniq -c | sort -rn | head",
    "test -f README.md || echo '# App' > README.md",
    "touch test/app.test.js",
    "chmod +x src/index.js",
    "python3 -c 'print(1)'",
    "echo '{\"a\": 1}' | head -c 20",
    "stat -c %s src/index.js",
    "diff src/index.js src/index.js",
    "basename src/index.js .js",
    "date +%Y-%m-%d",
    "which node npm git",
    "uname -a",
    "npx prettier --check src",
    "npx eslint src",
    "tar czf dist.tgz dist && ls -l dist.tgz",
    "rm -rf dist",
    "mkdir -p $TMPDIR/scratch && touch $TMPDIR/scratch/x",
    "ps aux | head -3",
    "true",
    "env | grep -c NODE",
    "git log -1 --format=%s",
];

const STUB: &str = "#!/bin/sh\nexit 0\n";

#[test]
fn sixty_commands_of_a_web_application_ask_at_most_twice_in_auto_mode() {
    assert_eq!(COMMANDS.len(), 60);
    if !turnwright_sandbox::namespace_support().mounts {
        eprintln!("NOT TESTED: without mount namespaces `auto` mode asks about each command");
        return;
    }
    let calls: Vec<Value> = COMMANDS
        .iter()
        .map(|line| match line.strip_prefix('+') {
            Some(line) => call("exec", &json!({ "command": line, "escalate": "network" })),
            None => call("exec", &json!({ "command": line })),
        })
        .collect();
    let mut replies: Vec<_> = calls.chunks(10).map(|it| json!(it)).collect();
    replies.push(says("Done."));

    let stubs = turnwright_testing::temporary_folder();
    for name in ["npm", "npx", "node"] {
        turnwright_testing::write_program(&stubs.path().join(name), STUB);
    }
    let path = format!("{}:{}", stubs.path().display(), std::env::var("PATH").unwrap());
    let mut agent = TestAgent::builder()
        .file("package.json", "{\"name\": \"app\"}\n")
        .file("src/index.js", "app.listen(3000);\n")
        .file("public/index.html", "<h1>App</h1>\n")
        .variable("TURNWRIGHT_MODE", "auto")
        .variable("PATH", &path)
        .model(Value::from(replies))
        .permission("allow_once")
        .start();
    let git = |line: &str| {
        let words = line.split(' ');
        let mut command = std::process::Command::new("git");
        command.current_dir(agent.workspace()).args(words);
        assert!(
            process_waits::output(&mut command).is_ok_and(|it| it.status.success()),
            "git {line}"
        );
    };
    git("init -q");
    git("config user.name Ada");
    git("config user.email ada@example.org");
    git("add -A");
    git("commit -q -m first");
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(cards::questions(&agent) <= 2, "{} questions", cards::questions(&agent));
    let results = cards::results(&agent, agent.model().requests().len() - 1);
    assert_eq!(results.len(), COMMANDS.len());
    for (line, result) in COMMANDS.iter().zip(results) {
        for word in ["not executed", "Permission denied", "[sandbox", "could not be started"] {
            assert!(!result.contains(word), "{line}: {result}");
        }
    }
    assert!(agent.read("port.txt").contains("8080"));
    cards::check(&agent);
}
