"""How each gateway is started in front of the scripted provider, and which ways lead through it."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from upstream import MODEL

MASTER_KEY = "sk-master-0123456789"
UPSTREAM_KEY = "sk-upstream-0123456789"


@dataclass
class Way:
    """One way through a gateway: what the agent asks, and how."""

    name: str
    api: str
    model: str
    path: str = "/v1"
    headers: dict = field(default_factory=dict)
    # What other values are right here, and which cases cannot be played, with the reason.
    expects: dict = field(default_factory=dict)
    lacks: dict = field(default_factory=dict)


@dataclass
class Gateway:
    command: list
    ready: str
    ways: list
    environment: dict = field(default_factory=dict)
    key: str = MASTER_KEY


NO_LIST = "its list has no windows"
NO_COST = "it does not pass the cost on"
OPEN = "it asks for no key"
NO_PICTURES = {"picture": "a model of this name takes no pictures"}


def litellm(cache, folder, port, upstream):
    models = {
        "plain": f"openai/{MODEL}",
        "bridge": f"openai/responses/{MODEL}",
        "deepseek": f"deepseek/{MODEL}",
    }
    entries = [
        {
            "model_name": name,
            "litellm_params": {
                "model": model, "api_base": upstream, "api_key": UPSTREAM_KEY, "max_retries": 0,
            },
            "model_info": {"max_input_tokens": 50_000},
        }
        for name, model in models.items()
    ]
    config = {
        "model_list": entries,
        "litellm_settings": {"num_retries": 0, "include_cost_in_streaming_usage": True},
        "router_settings": {"num_retries": 0, "disable_cooldowns": True},
        "general_settings": {"master_key": MASTER_KEY},
    }
    # JSON is YAML, too.
    (folder / "config.yaml").write_text(json.dumps(config))
    return Gateway(
        command=[cache / "litellm/bin/litellm", "--config", folder / "config.yaml", "--host", "127.0.0.1",
                 "--port", str(port)],
        ready="/health/liveliness",
        environment={"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        ways=[
            Way("chat", "chat", "plain"),
            Way("chat over Responses", "chat", "bridge"),
            Way("DeepSeek", "chat", "deepseek", lacks=NO_PICTURES),
            Way("Responses", "responses", "plain"),
            Way("Responses over chat", "responses", "deepseek", lacks=NO_PICTURES),
        ],
    )


def rosetta(cache, folder, port, upstream):
    provider = {"api_key": UPSTREAM_KEY, "base_url": upstream}
    config = {
        "providers": {"over_chat": provider | {"type": "openai_chat"},
                      "over_responses": provider | {"type": "openai_responses"}},
        "models": {"chat": {"provider": "over_chat", "upstream_model": MODEL, "capabilities": ["text", "vision"]},
                   "responses": {"provider": "over_responses", "upstream_model": MODEL,
                                 "capabilities": ["text", "vision"]}},
        "server": {"host": "127.0.0.1", "port": port, "open_on_no_keys": True},
    }
    (folder / "config.jsonc").write_text(json.dumps(config))
    lacks = {"window": NO_LIST, "cost": NO_COST, "wrong key": OPEN, "no key": OPEN,
             "rate limit": "it drops Retry-After"}
    return Gateway(
        command=[cache / "llm-rosetta/bin/llm-rosetta-gateway", "--config", folder / "config.jsonc",
                 "--data-dir", folder / "data", "--no-banner"],
        ready="/health",
        ways=[
            Way("chat", "chat", "chat", lacks=lacks),
            Way("chat over Responses", "chat", "responses", lacks=lacks),
            Way("Responses", "responses", "responses", lacks=lacks),
            Way("Responses over chat", "responses", "chat", lacks=lacks),
        ],
    )


def portkey(cache, folder, port, upstream):
    headers = {"x-portkey-provider": "openai", "x-portkey-custom-host": upstream}
    lacks = {"window": NO_LIST, "no key": OPEN,
             "wrong key of the gateway": "the user's key is its provider's"}
    script = cache / "portkey/node_modules/@portkey-ai/gateway/build/start-server.js"
    return Gateway(
        command=["node", script, "--headless", f"--port={port}"],
        ready="/",
        environment={"TRUSTED_CUSTOM_HOSTS": "127.0.0.1"},
        ways=[
            Way("chat", "chat", MODEL, headers=headers, lacks=lacks),
            Way("Responses", "responses", MODEL, headers=headers, lacks=lacks),
        ],
    )


def ogx(cache, folder, port, upstream):
    lacks = {"window": NO_LIST, "wrong key": OPEN, "no key": OPEN, "cost": NO_COST}
    # It repeats each refused request twice by itself.
    tries = {"quota used up": {"requests": 3}}
    providers = ["inference=remote::vllm", "responses=inline::builtin", "files=inline::localfs",
                 "vector_io=inline::sqlite-vec", "tool_runtime=inline::file-search"]
    variables = {"VLLM_URL": upstream, "VLLM_API_TOKEN": UPSTREAM_KEY, "HOME": str(folder)}
    # It would download a table of tokens, which LiteLLM brings along.
    tokens = next(cache.glob("litellm/lib/python3*/site-packages/litellm/litellm_core_utils/tokenizers"), None)
    if tokens:
        variables["TIKTOKEN_CACHE_DIR"] = str(tokens)
    return Gateway(
        command=[cache / "ogx/bin/ogx", "run", "--insecure", "--port", str(port), "--providers",
                 ",".join(providers)],
        ready="/v1/health",
        environment=variables,
        ways=[
            Way("chat", "chat", f"vllm/{MODEL}", expects=tries, lacks=lacks),
            Way("Responses", "responses", f"vllm/{MODEL}", expects=tries, lacks=lacks | {
                "reasoning": "it drops thoughts unless an effort is asked for",
                "prompt too long": "it cuts the prompt by itself",
            }),
        ],
    )


GATEWAYS = {"litellm": litellm, "llm-rosetta": rosetta, "portkey": portkey, "ogx": ogx}


def environment(gateway):
    proxies = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return proxies | {"NO_PROXY": "*", "no_proxy": "*"} | gateway.environment
