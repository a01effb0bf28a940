"""Small programs that stand for engines with one fault each, and how to look at processes."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import psutil

from deployments import providers
from deployments.engine import EngineProcess
from serve_app.config import Engine

#: Answers 200 to every GET on the port it is given, once BEFORE has run.
SERVER = """
import http.server, os, signal, subprocess, sys, time
port = int(sys.argv[1])
{before}
class Well(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
http.server.HTTPServer(("127.0.0.1", port), Well).serve_forever()
"""
#: A child in a session of its own that hears no TERM; its number goes to the file.
STRAY = """
stray = subprocess.Popen(
    [sys.executable, "-c",
     "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"],
    start_new_session=True,
)
open({path!r}, "w").write(str(stray.pid))
time.sleep(0.3)
"""


def script(before: str = "") -> Callable[[int], list[str]]:
    """Give the command of a well-behaved server that first does something."""
    return lambda port: [sys.executable, "-c", SERVER.format(before=before), str(port)]


def llama(engine: Engine, slots: int = 1) -> Callable[[int], list[str]]:
    """Give the command of the real llama.cpp server."""
    command = providers.load("llama_cpp").command
    assert command is not None
    return lambda port: command(
        engine, slots=slots, host="127.0.0.1", port=port, python=sys.executable
    )


@asynccontextmanager
async def running(
    command: Callable[[int], list[str]],
    engine: Engine | None = None,
    *,
    health_path: str = "/health",
    withhold: Collection[str] = (),
) -> AsyncGenerator[EngineProcess]:
    """Keep an engine alive for the length of a block."""
    process = EngineProcess(
        "test",
        command,
        engine or Engine(stop_grace_s=5),
        health_path=health_path,
        withhold=withhold,
    )
    await process.start()
    try:
        yield process
    finally:
        await process.stop()


async def gone(pid: int, within_s: float = 5.0) -> bool:
    """Tell whether a process ends in time; one that waits to be collected has ended."""
    async with asyncio.timeout(within_s):
        while runs(pid):  # noqa: ASYNC110  (another process gives no event)
            await asyncio.sleep(0.02)
    return True


def runs(pid: int) -> bool:
    """Tell whether a process runs."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def number_in(path: Path, within_s: float = 5.0) -> int:
    """Wait until a program has written a number to a file."""
    async with asyncio.timeout(within_s):
        while not (path.exists() and path.read_text()):  # noqa: ASYNC110, ASYNC240  (as above)
            await asyncio.sleep(0.02)
    return int(path.read_text())  # noqa: ASYNC240  (one line)
