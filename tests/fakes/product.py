"""The product as its user starts it: `iop-edge run`, a real process with a real Ray below it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

START_S = 180.0
COMMAND = str(Path(sys.executable).with_name("iop-edge"))


@dataclass
class Product:
    """A running product."""

    process: subprocess.Popen[str]
    port: int
    config: Path
    said: Path

    @property
    def url(self) -> str:
        """Its address, without `/v1`."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def api(self) -> str:
        """Address of its API, as clients want it."""
        return f"{self.url}/v1"

    def output(self) -> str:
        """All that it has printed."""
        return self.said.read_text(encoding="utf-8")

    def descendants(self) -> list[psutil.Process]:
        """Every process below it."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self.process.pid).children(recursive=True)
        return []

    def find(self, word: str) -> list[psutil.Process]:
        """Its processes with this word in their command line; guards are none of them."""
        found: list[psutil.Process] = []
        for process in self.descendants():
            with contextlib.suppress(psutil.Error):
                line = " ".join(process.cmdline())
                if word in line and "guard.py" not in line:
                    found.append(process)
        return found

    def kill(self, word: str) -> None:
        """Kill -9 the processes with this word in their command line; there has to be one."""
        found = self.find(word)
        assert found, f"no process is called {word}"
        for process in found:
            process.kill()

    def logs(self, pattern: str) -> str:
        """The text of its log files with names like this."""
        folder = Path(f"/tmp/iop-{os.getuid()}-{self.port}/ray/session_latest/logs")
        files = [path for path in folder.rglob(pattern) if path.is_file()]
        return "".join(path.read_text(encoding="utf-8", errors="replace") for path in files)

    def stop(self, number: int = signal.SIGINT) -> int:
        """Send a signal and wait for the end; gives the exit code."""
        self.process.send_signal(number)
        return self.process.wait(60)


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def started(
    config: str, folder: Path, *, port: int = 0, environment: Mapping[str, str] | None = None
) -> Generator[Product]:
    """The product over this configuration, ready; ended when the block ends."""
    path = folder / "edge.yaml"
    path.write_text(config, encoding="utf-8")
    said = folder / "said.txt"
    port = port or free_port()
    with said.open("w", encoding="utf-8") as output:
        words = [COMMAND, "run", "--config", str(path), "--port", str(port)]
        process = subprocess.Popen(
            words,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env=os.environ | (environment or {}),  # noqa: TID251 - the child's
        )
    product = Product(process, port, path, said)
    try:
        wait_for(lambda: "\nReady: " in product.output() or process.poll() is not None, START_S)
        assert process.poll() is None, product.output()
        yield product
    finally:
        if process.poll() is None:
            product.stop()


def wait_for(holds: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Wait until something is true; it is looked at twenty times a second."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"not true within {timeout_s:g} s"
        time.sleep(0.05)


def ask(api: str, model: str, **fields: object) -> httpx.Response:
    """One chat completion by plain HTTP."""
    body = {"model": model, "messages": [{"role": "user", "content": "Say hello."}], **fields}
    return httpx.post(f"{api}/chat/completions", json=body, timeout=60)
