"""llama.cpp's server: our own process over one GGUF file, or one that runs elsewhere."""

from __future__ import annotations

from pathlib import Path

from serve_app.config import Engine
from serve_app.runs import ProviderFacts

PROVIDER = ProviderFacts(type="llama_cpp", has_engine=True, health_path="/health")


def command(engine: Engine, *, slots: int, host: str, port: int, python: str) -> list[str]:
    """Give the command line of `deployments/llama_server.py`."""
    options = {
        "--model": engine.model,
        "--host": host,
        "--port": str(port),
        "--context": str(engine.context),
        "--parallel": str(slots),
        "--threads": str(engine.threads or ""),
        "--chat-template": engine.chat_template,
    }
    # By its path and with -P: neither the working folder nor an installation has a say in it.
    words = [f"{option}={value}" for option, value in options.items() if value]
    return [python, "-P", _server_path(), *words]


def _server_path() -> str:
    return str(Path(__file__).parents[1] / "llama_server.py")
