# shellcheck shell=bash
# The gateways of tests/real/run: each stands between the agent and a scripted provider, and plays the table
# gateways/cases.json. What it made of each case is in $logs/GATEWAY/cases.

litellm_version=1.108.7
rosetta_version=0.13.0
ogx_version=1.5.0
llmock_version=0.2.2

get_litellm() {
  python_packages litellm 10 "litellm[proxy]==$litellm_version"
}

get_llm-rosetta() {
  python_packages llm-rosetta 10 "llm-rosetta[gateway]==$rosetta_version"
}

get_ogx() {
  # What its Responses API wants to be there, though nobody searches files.
  python_packages ogx 12 "ogx==$ogx_version" sqlite-vec chardet pypdf
}

get_llmock() {
  python_packages llmock 10 "llmock==$llmock_version"
}

get_portkey() {
  local folder=$cache/portkey
  version=$(sed -n 's/.*gateway": "\([0-9.]*\)".*/gateway \1/p' "$here/gateways/portkey/package.json")
  if ! node -e 'process.exit(+process.versions.node.split(".")[0] < 20 ? 1 : 0)' 2>/dev/null ||
    ! command -v npm >/dev/null; then
    lack='no node from 20 with npm (install them from https://nodejs.org)'
    return 1
  fi
  if [[ -d $folder/node_modules ]] &&
    cmp -s "$here/gateways/portkey/package.json" "$folder/package.json"; then
    return
  fi
  mkdir -p "$folder"
  rm -rf "$folder/node_modules"
  cp "$here/gateways/portkey/package.json" "$folder"
  if ! within 180 npm install --no-save --prefix "$folder" --ignore-scripts --no-audit --no-fund \
    --fetch-retries 0 >"$logs/install-portkey" 2>&1; then
    rm -rf "$folder/node_modules"
    lack='npm cannot install @portkey-ai/gateway (is the npm registry reachable?)'
    return 1
  fi
}

# A server with a model of its own, so it is not installed here, and no case is played.
get_vllm() {
  version=$(within 120 vllm --version 2>/dev/null | tail -n 1)
  if [[ -z $version ]]; then
    lack='no vllm (install its build for CPUs: https://docs.vllm.ai)'
    return 1
  elif [[ ! -d ${VLLM_MODEL:-} ]]; then
    lack='no model: VLLM_MODEL must name the folder of one that calls tools as Hermes does, such as Qwen2.5'
    return 1
  fi
}

try_litellm() {
  through_gateway litellm
}

try_llm-rosetta() {
  through_gateway llm-rosetta
}

try_portkey() {
  through_gateway portkey
}

try_ogx() {
  through_gateway ogx
}

through_gateway() { # NAME
  local status=0
  within 3000 python3 -B "$here/gateways/drive.py" "$1" "$bin/turnwright" "$cache" "$logs/$1" \
    >"$logs/$1/cases" 2>&1 || status=$?
  cat "$logs/$1/cases"
  note=$(tail -n 1 "$logs/$1/cases")
  problem=$note
  return "$status"
}

# llmock breaks streams and refuses requests at random, and judges its client at the end.
try_llmock() {
  local status=0
  within 900 python3 -B "$here/gateways/llmock.py" "$bin/turnwright" "$cache" "$logs/llmock" \
    >"$logs/llmock/verdict" 2>&1 || status=$?
  note=$(tail -n 1 "$logs/llmock/verdict")
  problem=$note
  return "$status"
}

try_vllm() {
  local server attempt=0 prompt
  launch vllm serve "$VLLM_MODEL" --served-model-name small --host 127.0.0.1 --port 18377 \
    --max-model-len 16384 --enable-auto-tool-choice --tool-call-parser hermes >"$logs/vllm/server" 2>&1
  server=$child
  if ! within 900 bash -c 'until curl -sf --noproxy "*" http://127.0.0.1:18377/health; do sleep 1; done'; then
    problem="the server did not start: $logs/vllm/server"
    return 1
  fi
  for prompt in "${prompts[@]}"; do
    attempt=$((attempt + 1))
    if turn 900 "$logs/vllm/attempt-$attempt" http://127.0.0.1:18377/v1 small; then
      note="attempt $attempt"
      stop "$server"
      return
    fi
    echo "vllm, attempt $attempt: $problem"
  done
  return 1
}
