# shellcheck shell=bash
# The official SDKs of ACP in tests/real/run: their clients hold the same conversation with the agent, over
# stdio, through the conductor and with `turnwright serve`. The model plays acp/scenario.json. All messages
# are kept in $logs/acp-…/*lines and checked against the schema of their version.

get_acp-typescript() {
  local folder=$cache/acp
  version=$(sed -n 's/.*sdk": "\([0-9.]*\)".*/sdk \1/p' "$here/acp/typescript/package.json")
  if ! node -e 'process.exit(+process.versions.node.split(".")[0] < 20 ? 1 : 0)' 2>/dev/null ||
    ! command -v npm >/dev/null; then
    lack='no node from 20 with npm (install them from https://nodejs.org)'
    return 1
  fi
  if [[ -d $folder/node_modules ]] &&
    cmp -s "$here/acp/typescript/package-lock.json" "$folder/package-lock.json"; then
    return
  fi
  mkdir -p "$folder"
  rm -rf "$folder/node_modules"
  cp "$here/acp/typescript/package.json" "$here/acp/typescript/package-lock.json" "$folder"
  if ! within 60 npm ci --prefix "$folder" --ignore-scripts --no-audit --no-fund \
    --fetch-retries 0 >"$logs/install-acp-typescript" 2>&1; then
    rm -rf "$folder/node_modules"
    lack='npm cannot install @agentclientprotocol/sdk (is the npm registry reachable?)'
    return 1
  fi
}

get_acp-typescript-http() {
  get_acp-typescript && has_serve
}

get_acp-typescript-websocket() {
  get_acp-typescript && has_serve
}

# What cannot be fetched is skipped. Building takes minutes, and an error in it is an error of the test.
get_acp-rust() {
  local manifest=$here/acp/rust/Cargo.toml
  version=$(sed -n 's/^agent-client-protocol = .*"=\([0-9.]*\)".*/sdk \1/p' "$manifest")
  if ! command -v cargo >/dev/null; then
    lack='no cargo (install Rust: https://rustup.rs)'
    return 1
  fi
  cmp -s "${manifest%.toml}.lock" "$cache/acp-target/fetched" && return
  if ! within 300 cargo fetch --locked --manifest-path "$manifest" >"$logs/install-acp-rust" 2>&1; then
    lack='cargo cannot fetch the SDK (is crates.io reachable?)'
    return 1
  fi
  mkdir -p "$cache/acp-target"
  cp "${manifest%.toml}.lock" "$cache/acp-target/fetched"
}

get_acp-conductor() {
  get_acp-rust || return
  version=$(sed -n 's/^agent-client-protocol-conductor = .*"=\([0-9.]*\)".*/conductor \1/p' \
    "$here/acp/rust/Cargo.toml")
}

get_acp-http() {
  get_acp-rust || return
  version=$(sed -n 's/^agent-client-protocol-http = .*"=\([0-9.]*\)".*/http \1/p' \
    "$here/acp/rust/Cargo.toml")
  has_serve
}

get_acp-websocket() {
  get_acp-http
}

has_serve() {
  if ! within 10 "$bin/turnwright" serve --help >/dev/null 2>&1; then
    lack='this turnwright has no command `serve`'
    return 1
  fi
}

try_acp-typescript() {
  local entry
  for entry in stable unstable v2 v2-unstable; do
    scene "typescript-$entry" || return
    converses "$(version_of "$entry")" node "$here/acp/typescript/drive.mjs" "$cache/acp" "$entry" \
      "$folder/project" "$here/acp/tee.sh" "$folder/lines" "$bin/turnwright" || return
  done
}

try_acp-typescript-http() {
  typescript_serve http
}

try_acp-typescript-websocket() {
  typescript_serve ws
}

typescript_serve() { # SCHEME
  local entry
  for entry in unstable v2-unstable; do
    scene "typescript-$1-$entry" && serves "$1" || return
    converses "$(version_of "$entry")" node "$here/acp/typescript/drive.mjs" "$cache/acp" "$entry" \
      "$folder/project" connect "$endpoint" "$folder/lines" || return
    stop "$serving"
  done
}

version_of() { # ENTRY
  case $1 in
    v2*) printf 2 ;;
    *) printf 1 ;;
  esac
}

try_acp-rust() {
  local protocol
  build_rust || return
  for protocol in 1 2; do
    scene "rust-v$protocol" || return
    converses "$protocol" "$rust/drive" "$protocol" "$folder/project" stdio \
      "$here/acp/tee.sh" "$folder/lines" "$bin/turnwright" || return
  done
}

# Two lines of tee.sh: what the client and the conductor say to each other, and what the last proxy and the
# agent do.
try_acp-conductor() {
  local protocol
  build_rust || return
  for protocol in 1 2; do
    scene "conductor-v$protocol" || return
    converses "$protocol" "$rust/drive" "$protocol" "$folder/project" conductor \
      "$here/acp/tee.sh" "$folder/client-lines" "$rust/conductor" agent \
      "$rust/proxy greet" "$rust/proxy polyfill" \
      "'$here/acp/tee.sh' '$folder/agent-lines' '$bin/turnwright'" || return
  done
}

try_acp-http() {
  rust_serve http
}

try_acp-websocket() {
  rust_serve ws
}

rust_serve() { # SCHEME
  local protocol
  build_rust || return
  for protocol in 1 2; do
    scene "$1-v$protocol" && serves "$1" || return
    converses "$protocol" "$rust/drive" "$protocol" "$folder/project" \
      connect "$endpoint" "$folder/lines" || return
    stop "$serving"
  done
}

build_rust() { # → $rust
  local target=$cache/acp-target
  rust=$target/debug
  if ! within 1800 env CARGO_TARGET_DIR="$target" nice cargo build --locked \
    --manifest-path "$here/acp/rust/Cargo.toml" >"$logs/build-acp-rust" 2>&1; then
    problem="cargo cannot build it: $logs/build-acp-rust"
    return 1
  fi
}

# Starts a scripted model and makes a project for one conversation.
scene() { # NAME → $folder, $url, $model_server
  folder=$logs/acp-$1
  mkdir -p "$folder/project" "$folder/user"
  folder=$(cd "$folder" && pwd -P)
  launch "$bin/examples/scripted_model" "$here/acp/scenario.json" >"$folder/model" 2>&1
  model_server=$child
  address 30 "$folder/model"
}

# Starts `turnwright serve` with the settings of the project.
serves() { # http|ws → $endpoint, $serving
  local end=$((SECONDS + 30)) place
  export TURNWRIGHT_SERVE_TOKEN=the-token-of-tests-real
  project_environment
  launch "${environment[@]}" "$bin/turnwright" serve --listen 127.0.0.1:0 >"$folder/serve" 2>&1
  serving=$child
  until place=$(grep -Eo -m 1 '127\.0\.0\.1:[1-9][0-9]*' "$folder/serve" | head -n 1) && [[ -n $place ]]; do
    if ! kill -0 "$serving" 2>/dev/null || ((SECONDS >= end)); then
      problem="turnwright serve did not start: $folder/serve"
      return 1
    fi
    sleep 0.1
  done
  endpoint=$1://$place/acp
}

# Lets a client hold the conversation, and checks the lines of all connections.
converses() { # PROTOCOL CLIENT...
  local protocol=$1 status=0 lines
  shift
  in_project 90 "$@" >"$folder/steps" 2>"$folder/errors" || status=$?
  stop "$model_server"
  if ((status != 0)); then
    problem="$(tail -n 1 "$folder/errors") (status $status, $folder)"
    return 1
  fi
  if grep -q '^SKIPPED' "$folder/steps"; then
    note=$(grep -m 1 '^SKIPPED' "$folder/steps")
  fi
  for lines in "$folder"/*lines; do
    if ! "$bin/examples/check_lines" "$protocol" "$lines/to-agent" "$lines/from-agent" \
      >"$lines/checked" 2>&1; then
      problem="a message does not fit the schema: $lines/checked"
      return 1
    fi
  done
}
