"""Other gateways, to be measured in the same run: LiteLLM's proxy and vllm-router.

Each is installed from its package index into an environment of its own, below a cache folder,
and stays there for the next run.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from processes import Program, free_port

#: Release 1.107.0 of litellm was a hijacked upload: never that one.
LITELLM = "litellm[proxy]>=1.108,!=1.107.0,<2"
VLLM_ROUTER = "vllm-router>=0.1.17,<0.2"


def install(name: str, requirement: str, cache: Path) -> Path:
    """Installs one peer unless it is there, and gives its interpreter."""
    home = cache / name
    python = home / "bin" / "python"
    wanted = home / "requirement.txt"
    if wanted.exists() and wanted.read_text() == requirement:
        return python
    print(f"installing {requirement} into {home}", flush=True)
    cache.mkdir(parents=True, exist_ok=True)
    (cache / ".gitignore").write_text("*\n")
    if uv := shutil.which("uv"):
        subprocess.run([uv, "venv", "-q", "--clear", "-p", sys.executable, str(home)], check=True)
        subprocess.run([uv, "pip", "install", "-q", "-p", str(python), requirement], check=True)
    else:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", requirement], check=True)
    wanted.write_text(requirement)
    return python


def version(python: Path, package: str) -> str:
    """The version that an environment has."""
    code = "import sys, importlib.metadata as m; print(m.version(sys.argv[1]))"
    done = subprocess.run(
        [str(python), "-c", code, package], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def litellm(cache: Path, scratch: Path, upstream_port: int) -> tuple[Program, str, str, str]:
    """LiteLLM's proxy in front of the upstream: program, address, readiness URL, version."""
    python = install("litellm", LITELLM, cache)
    port = free_port()
    models = [
        {
            "model_name": name,
            "litellm_params": {
                "model": f"openai/{name}",
                "api_base": f"http://127.0.0.1:{upstream_port}/v1",
                "api_key": "none",
            },
        }
        for name in ("bench-stream", "bench-unary")
    ]
    config = scratch / "litellm.yaml"
    # JSON is YAML.
    config.write_text(json.dumps({"model_list": models}))
    program = Program(
        "litellm",
        [str(python.with_name("litellm")), "--config", str(config), "--host", "127.0.0.1",
         "--port", str(port), "--telemetry", "False"],
        scratch / "litellm.log",
        environment={
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_LOG": "ERROR",
            # No key, as the product here has none: checking one costs LiteLLM time.
            "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        },
    )  # fmt: skip
    root = f"http://127.0.0.1:{port}"
    return program, f"{root}/v1", f"{root}/health/liveliness", version(python, "litellm")


def vllm_router(cache: Path, scratch: Path, upstream_port: int) -> tuple[Program, str, str, str]:
    """vllm-router in front of the upstream: program, address, readiness URL, version."""
    python = install("vllm-router", VLLM_ROUTER, cache)
    port, metrics_port = free_port(), free_port()
    program = Program(
        "vllm-router",
        [str(python), "-m", "vllm_router.launch_router", "--host", "127.0.0.1", "--port",
         str(port), "--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics_port),
         "--worker-urls", f"http://127.0.0.1:{upstream_port}", "--policy", "round_robin",
         "--log-level", "warning"],
        scratch / "vllm-router.log",
    )  # fmt: skip
    root = f"http://127.0.0.1:{port}"
    return program, f"{root}/v1", f"{root}/health", version(python, "vllm-router")
