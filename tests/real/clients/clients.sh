# shellcheck shell=bash
# The ACP clients of tests/real/run: each plays the same prompts with a scripted model, and what it
# shows is kept in $logs/CLIENT/…-shown.

codecompanion_commit=f1afd02537c68b3dd6e0d41d4adda5ef538e0473
plenary_commit=b9fd5226c2f76c951fc8ed5923d85e4de065e509
agent_shell_commit=0baa3537be2fa17f7b60fe67a994dc6486ae2ec9
acp_el_commit=4d7d58dc39870e9390e94617e13d7ada175d7945
shell_maker_commit=ab4f8ebaf4ef7a7db4762c5d5075baea580044ba

get_acpx() {
  local folder=$cache/acpx
  version=$(sed -n 's/.*acpx": "\([0-9.]*\)".*/acpx \1/p' "$here/clients/acpx/package.json")
  if ! node -e 'process.exit(+process.versions.node.split(".")[0] < 20 ? 1 : 0)' 2>/dev/null ||
    ! command -v npm >/dev/null; then
    lack='no node from 20 with npm (install them from https://nodejs.org)'
    return 1
  fi
  if [[ -d $folder/node_modules ]] &&
    cmp -s "$here/clients/acpx/package-lock.json" "$folder/package-lock.json"; then
    return
  fi
  mkdir -p "$folder"
  rm -rf "$folder/node_modules"
  cp "$here/clients/acpx/package.json" "$here/clients/acpx/package-lock.json" "$folder"
  # `npm ci` refuses the lock file, because it lacks optional packages that the registry does not have.
  if ! within 180 npm install --no-save --prefix "$folder" --ignore-scripts --no-audit --no-fund \
    --fetch-retries 0 >"$logs/install-acpx" 2>&1; then
    rm -rf "$folder/node_modules"
    lack='npm cannot install acpx (is the npm registry reachable?)'
    return 1
  fi
}

get_toad() {
  local venv=$cache/toad log=$logs/install-toad make
  version=$(sed -n 's/^batrachian-toad==/toad /p' "$here/clients/toad/requirements.txt")
  if python3.14 -c 'import venv' 2>/dev/null; then
    make='python3.14 -m venv'
  elif command -v uv >/dev/null; then
    make='uv venv --seed --python 3.14'
  else
    lack='no python3.14 with venv, and no uv (install one: https://docs.astral.sh/uv)'
    return 1
  fi
  cmp -s "$here/clients/toad/requirements.txt" "$venv/installed" && return
  rm -rf "$venv"
  # shellcheck disable=SC2086
  if ! within 300 $make "$venv" >"$log" 2>&1 ||
    ! within 300 "$venv/bin/python" -m pip install --only-binary :all: \
      -r "$here/clients/toad/requirements.txt" >>"$log" 2>&1; then
    lack='Toad cannot be installed (are PyPI and, with uv, a Python 3.14 reachable?)'
    return 1
  fi
  cp "$here/clients/toad/requirements.txt" "$venv/installed"
}

get_codecompanion() {
  version="codecompanion ${codecompanion_commit:0:9}"
  if ! nvim --headless --clean +'lua os.exit(vim.fn.has("nvim-0.11") == 1 and 0 or 1)' 2>/dev/null; then
    lack='no nvim from 0.11 (install it from https://neovim.io)'
    return 1
  fi
  if ! plugin nvim olimorris/codecompanion.nvim "$codecompanion_commit" ||
    ! plugin nvim nvim-lua/plenary.nvim "$plenary_commit"; then
    lack='CodeCompanion cannot be fetched (are git and github.com there?)'
    return 1
  fi
}

get_agent-shell() {
  version="agent-shell ${agent_shell_commit:0:9}"
  if ! emacs -Q --batch --eval '(kill-emacs (if (version< emacs-version "29.1") 1 0))' 2>/dev/null; then
    lack='no emacs from 29.1 (install it from https://www.gnu.org/software/emacs)'
    return 1
  fi
  if ! plugin emacs xenodium/agent-shell "$agent_shell_commit" ||
    ! plugin emacs xenodium/acp.el "$acp_el_commit" ||
    ! plugin emacs xenodium/shell-maker "$shell_maker_commit"; then
    lack='agent-shell cannot be fetched (are git and github.com there?)'
    return 1
  fi
}

plugin() { # EDITOR REPOSITORY COMMIT
  local folder=$cache/$1/${2#*/} log=$logs/install-${2#*/}
  [[ $(git -C "$folder" rev-parse HEAD 2>/dev/null) == "$3" ]] && return
  rm -rf "$folder"
  within 180 git init -q "$folder" >"$log" 2>&1 &&
    within 180 git -C "$folder" fetch -q --depth 1 "https://github.com/$2" "$3" >>"$log" 2>&1 &&
    git -C "$folder" checkout -q FETCH_HEAD >>"$log" 2>&1
}

try_acpx() {
  plays acpx allowed acpx_runs allowed && plays acpx rejected acpx_runs rejected
}

try_toad() {
  plays toad allowed toad_runs a && plays toad rejected toad_runs r
}

try_codecompanion() {
  plays codecompanion allowed codecompanion_runs accept_change &&
    plays codecompanion rejected codecompanion_runs reject_change
}

try_agent-shell() {
  plays agent-shell allowed agent_shell_runs y && plays agent-shell rejected agent_shell_runs 'C-c C-c'
}

# Starts a scripted model and a new project, lets the client run there, and compares what it shows with
# clients/CLIENT/SCENARIO.txt.
plays() { # CLIENT SCENARIO COMMAND...
  local client=$1 expected=$here/clients/$1/$2.txt folder=$logs/$1/$2 server status=0
  launch "$bin/examples/scripted_model" "$here/clients/$2.json" >"$logs/$1/$2-model" 2>&1
  server=$child
  address 30 "$logs/$1/$2-model" || return
  mkdir -p "$folder/project" "$folder/user"
  folder=$(cd "$folder" && pwd -P)
  shift 2
  "$@" >"$folder-output" 2>"$folder-errors" || status=$?
  stop "$server"
  tidy "$folder/project" <"$folder-output" >"$folder-shown"
  if ((status != 0)); then
    problem="the client's status is $status: $folder-errors"
    return 1
  fi
  if ! "compare_$client" "$expected" "$folder-shown" >"$folder-difference"; then
    problem="it does not show what it should: $folder-difference"
    return 1
  fi
}

compare_acpx() { # EXPECTED SHOWN
  diff "$1" "$2"
}

compare_codecompanion() { # EXPECTED SHOWN
  diff "$1" "$2"
}

compare_agent-shell() { # EXPECTED SHOWN
  diff "$1" "$2"
}

# Which screens there are depends on timing, so each line must be on one of them.
compare_toad() { # EXPECTED SHOWN
  local line is_same=true
  while IFS= read -r line; do
    if ! grep -aqF -- "$line" "$2"; then
      printf 'no screen has: %s\n' "$line"
      is_same=false
    fi
  done <"$1"
  $is_same
}

# Runs a command in the project with the agent's settings, and with a home of its own.
in_project() { # SECONDS COMMAND...
  local limit=$1
  shift
  project_environment
  within "$limit" "${environment[@]}" bash -c 'cd "$0" && exec "$@"' "$folder/project" "$@"
}

project_environment() { # → $environment
  environment=(env -u OPENAI_API_KEY -u XDG_CONFIG_HOME -u XDG_DATA_HOME -u XDG_STATE_HOME
    HOME="$folder/user" TURNWRIGHT_HOME="$folder/home" TURNWRIGHT_MODE=ask
    OPENAI_BASE_URL="$url/v1" TURNWRIGHT_MODEL=scripted NO_PROXY=127.0.0.1 no_proxy=127.0.0.1)
}

# Replaces what differs from run to run and between systems.
tidy() { # PROJECT
  sed -e "s|$1|PROJECT|g" -e "s|$bin|BIN|g" -e 's/ *$//' \
    -e 's/[0-9a-f]\{8\}-[0-9a-f]\{4\}-[0-9a-f-]\{22\}/ID/g' -e '/^\* Sandbox: /d' \
    -e '/^• Sandbox: /d' -e 's/^▼ Thought, ran/▼ Ran/' | without_thoughts
}

# The only thought is the notice that the sandbox has gaps, which not every system has: CodeCompanion shows
# it as reasoning before a response, agent-shell as a folded section.
without_thoughts() {
  awk '/^### Reasoning$/ { skips = 1 }
    /^▶ ✶ Thinking$/ { skips_blank = 1; next }
    skips { if (/^### Response$/) { skips = 0; skips_blank = 1 }; next }
    skips_blank { skips_blank = 0; if ($0 == "") next }
    { print }'
}

acpx_runs() { # allowed|rejected
  local permission=--approve-all prompt result
  [[ $1 == rejected ]] && permission=--deny-all
  acpx "$permission" sessions new >/dev/null
  set -- "Do it."
  [[ $permission == --approve-all ]] && set -- "$@" Ask. 2 /status '/undo 99' '/mode nonsense'
  for prompt in "$@"; do
    printf '> %s\n' "$prompt"
    result=0
    acpx "$permission" prompt "$prompt" | finished_cards || result=$?
    # 5 means that a permission was denied.
    ((result == 0 || result == 5)) || return "$result"
  done
  acpx "$permission" sessions close >/dev/null
}

acpx() {
  in_project 120 node "$cache/acpx/node_modules/acpx/dist/cli.js" --agent "$bin/turnwright" "$@"
}

# Leaves out acpx's account of the client's requests and of running calls, which depends on timing.
finished_cards() {
  awk '/^\[client\] / { next }
    /^\[tool\] .* \((running|pending)\)$/ { skips = 1; next }
    skips && /^(  |$)/ { next }
    { skips = 0; print }' | cat -s
}

toad_runs() { # KEY
  local steps=('Do it.' 'All done.' Ask. 'own words' /status 'Context:')
  [[ $1 == r ]] && steps=('Do it.' 'Nothing was done.')
  in_project 240 "$cache/toad/bin/python" "$here/clients/toad/drive.py" "$cache/toad/bin/toad" \
    "$bin/turnwright" "$folder/project" "$1" "${steps[@]}"
}

codecompanion_runs() { # accept_change|reject_change
  local prompts=('Do it.' Ask. 2 '\status' '\undo 99' '\mode nonsense')
  [[ $1 == reject_change ]] && prompts=('Do it.')
  in_project 120 nvim --headless --clean -l "$here/clients/codecompanion/drive.lua" \
    "$cache/nvim/plenary.nvim" "$cache/nvim/codecompanion.nvim" "$bin/turnwright" \
    "$folder/shown" "$1" "${prompts[@]}" || return
  cat "$folder/shown"
}

agent_shell_runs() { # KEYS
  local prompts=('Do it.' Ask. 2 /status '/undo 99' '/mode nonsense')
  # Rejecting also interrupts the turn.
  [[ $1 == 'C-c C-c' ]] && prompts=('Do it.' 'Try again.' 'Once more.')
  in_project 240 emacs -Q --batch -l "$here/clients/agent-shell/drive.el" "$root/docs/editors/emacs.md" \
    "$cache/emacs" "$bin" "$1" "${prompts[@]}"
}
