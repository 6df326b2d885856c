"""Serves one model with llama.cpp's OpenAI-compatible server, on this machine only, until killed.

Prints `LISTENING http://127.0.0.1:PORT` as soon as the model is loaded and the server healthy.
"""

import argparse
import os
import pathlib
import signal
import urllib.request

import xllamacpp


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a GGUF file")
    parser.add_argument("--template", required=True, help="the chat template, in Jinja")
    parser.add_argument("--port", type=int, default=0, help="0 lets the system choose")
    parser.add_argument("--context", type=int, default=8192, help="tokens, for all slots together")
    parser.add_argument("--slots", type=int, default=1, help="requests that run side by side")
    return parser.parse_args()


def parameters(wanted):
    """As deterministic as it gets: the likeliest token each time."""
    it = xllamacpp.CommonParams()
    it.model.path = wanted.model
    it.model_alias = {pathlib.Path(wanted.model).stem}
    it.chat_template = pathlib.Path(wanted.template).read_text(encoding="utf-8")
    it.use_jinja = True
    it.hostnames = ["127.0.0.1"]
    it.port = wanted.port
    it.n_ctx = wanted.context
    it.n_parallel = wanted.slots
    it.endpoint_slots = True
    it.sampling.temp = 0.0
    it.sampling.seed = 1
    cores = os.cpu_count() or 1
    # The threads wait for each other after each layer: on a busy machine one too many makes a token
    # take seconds.
    it.cpuparams.n_threads = max(1, min(4, cores - 1))
    it.cpuparams_batch.n_threads = min(4, cores)
    it.warmup = False
    it.fit_params = False
    return it


def main():
    server = xllamacpp.Server(parameters(arguments()))
    with urllib.request.urlopen(server.listening_address + "/health", timeout=30) as answer:
        print("health:", answer.read().decode(), flush=True)
    print("LISTENING", server.listening_address, flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
