"""Start the server of a provider on this host, watch it, and start it again when it dies.

Rules of this file:
1. The engine runs under `guard.py`, so that nothing of it outlives this process, whatever ends it.
2. Every start is a new generation with a new port and a new key. What was granted on one generation
   is void when that generation ends; `wait_ended` tells.
3. Only a first start can fail for good, and only with an exit code that says the operator has to
   mend something. Everything else is tried again, with growing pauses.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import aiohttp

from serve_app.config import Engine, engine_environment
from serve_app.errors import ConfigError, NotReadyError

logger = logging.getLogger("ray.serve.edge.engine")

GUARD = Path(__file__).with_name("guard.py")
#: The engine's own key, for engines that take one from here (`llama_server.py`).
KEY_VARIABLE = "IOP_ENGINE_KEY"
#: Exit codes that no second try can change: misuse, not executable, not found.
REFUSALS = frozenset({2, 126, 127})
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 10.0
#: After having been well for this long, the next death counts as the first one.
WELL_S = 30.0
LINE_BYTES = 4096
KEPT_LINES = 50
TOLD_LINES = 12
#: What the guard may need beyond the grace to end a tree by KILL.
KILL_MARGIN_S = 5.0


class EngineProcess:
    """One engine, kept alive.

    All methods belong to one event loop. `start` returns at once; `wait_ready` tells how it went.

    Args:
        name: The provider's name in the configuration, for logs and messages.
        command: Gives the command line for a port.
        engine: Its settings; of these only the time limits of start and stop matter here.
        host: The address the engine listens on, and by which others reach it.
        health_path: Answers 200 when it is ready, from the server's root.
        withhold: Names of environment variables that are none of the engine's business.
    """

    def __init__(
        self,
        name: str,
        command: Callable[[int], Sequence[str]],
        engine: Engine,
        *,
        host: str = "127.0.0.1",
        health_path: str = "/health",
        withhold: Collection[str] = (),
    ) -> None:
        self.name = name
        #: Counts the starts; 0 before the first.
        self.generation = 0
        #: The engine's own process, while it runs.
        self.pid: int | None = None
        #: Why it is not ready; empty while it is.
        self.trouble = "not started"
        self._command = command
        self._host = host
        self._health_path = health_path
        self._start_s = engine.start_s
        self._stop_grace_s = engine.stop_grace_s
        self._withhold = frozenset(withhold)
        self._port = 0
        self._key = ""
        self._lines: collections.deque[str] = collections.deque(maxlen=KEPT_LINES)
        self._ready_at: float | None = None  # of the current generation
        self._was_ready = False  # ever
        self._too_slow = False  # the current generation
        self._refusal = ""
        self._settled = asyncio.Event()  # there is no more to wait for, for better or worse
        self._ended = asyncio.Event()  # of the current generation
        self._stopping = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None

    @property
    def ready(self) -> bool:
        """Whether the current generation has answered and still runs."""
        return self._ready_at is not None

    @property
    def url(self) -> str:
        """Where the current generation's API is (`http://127.0.0.1:4711/v1`)."""
        return f"http://{self._host}:{self._port}/v1"

    @property
    def headers(self) -> dict[str, str]:
        """What a request to the current generation has to bring."""
        return {"Authorization": f"Bearer {self._key}"}

    async def start(self) -> None:
        """Begin to keep the engine alive; repeated calls change nothing."""
        if self._watch is None and not self._stopping.is_set():
            # It lives until `stop`, beyond any scope of the caller.
            loop = asyncio.get_running_loop()
            self._watch = loop.create_task(self._keep_alive(), name=f"engine-{self.name}")

    async def wait_ready(self, timeout_s: float | None = None) -> None:
        """Wait until the engine answers; by default for as long as one start may take.

        Raises:
            ConfigError: The first start failed for something that the operator has to mend.
            NotReadyError: It is not ready in time, or was stopped.
        """
        limit_s = self._start_s if timeout_s is None else timeout_s
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._settled.wait()
        if self._refusal:
            raise ConfigError([self._refusal])
        if self._watch is not None and self._watch.done():
            self._watch.result()  # the command could not be made
        if not self.ready:
            raise NotReadyError(
                f"The engine of provider '{self.name}' is not ready after {limit_s:g} s:"
                f" {self.trouble}. {self._last_words()}",
                provider=self.name,
            )

    async def wait_ended(self, generation: int) -> None:
        """Wait until this generation has ended; at once if it has."""
        if generation == self.generation:
            await self._ended.wait()

    async def stop(self) -> None:
        """End the engine and everything it started; repeated calls change nothing."""
        self._stopping.set()
        self._close()
        self.trouble = "stopped"
        self._settled.set()
        if self._watch is None:
            return
        self._terminate()
        done, _ = await asyncio.wait({self._watch}, timeout=self._stop_grace_s + KILL_MARGIN_S)
        if not done:
            logger.error("%s: the guard of the engine does not end; killing it", self.name)
            self._kill()
            await asyncio.wait({self._watch}, timeout=KILL_MARGIN_S)

    async def _keep_alive(self) -> None:
        """Run one generation after the other, until `stop` or a refusal."""
        pause_s = FIRST_PAUSE_S
        try:
            while not self._stopping.is_set():
                well_s = await self._try_generation()
                if self._stopping.is_set() or self._refusal:
                    break
                if well_s >= WELL_S:
                    pause_s = FIRST_PAUSE_S
                logger.warning("%s: %s; again in %.1f s", self.name, self.trouble, pause_s)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._stopping.wait()
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        finally:
            self._settled.set()

    async def _try_generation(self) -> float:
        """Run the engine once; give for how long it was ready."""
        try:
            return await self._run_generation()
        except OSError as error:  # no port, no process, no file handle
            self._close()
            self.trouble = f"cannot be started: {error.strerror}"
            return 0.0

    async def _run_generation(self) -> float:
        """Run the engine once, to its end; give for how long it was ready."""
        process = self._process = await self._spawn()
        if self._stopping.is_set():
            self._terminate()
        ready_at = None
        try:
            async with asyncio.TaskGroup() as group:
                probe = group.create_task(self._until_ready())
                readers = [
                    group.create_task(self._read(process.stdout, has_pid=True)),
                    group.create_task(self._read(process.stderr)),
                ]
                code = await process.wait()
                ready_at = self._ready_at
                self._close()
                # What it said last; a process that got away may hold the pipe open for ever.
                await asyncio.wait(readers, timeout=1)
                for task in (probe, *readers):
                    task.cancel()
        finally:
            if process.returncode is None:  # cancelled
                self._terminate()
            self._close()
        self._judge(code)
        self._process = self.pid = None
        return time.monotonic() - ready_at if ready_at is not None else 0.0

    async def _spawn(self) -> asyncio.subprocess.Process:
        """Start the guard and the engine under it: a new generation."""
        with socket.create_server((self._host, 0)) as free:
            self._port = free.getsockname()[1]
        self._key = secrets.token_urlsafe(24)
        argv = self._command(self._port)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", str(GUARD), str(self._stop_grace_s), *argv),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=engine_environment(self._withhold) | {KEY_VARIABLE: self._key},
            # A Ctrl-C in the terminal is for the owner, who then stops the engine.
            start_new_session=True,
        )
        self.generation += 1
        self._too_slow = False
        self._ended = asyncio.Event()
        if self.generation == 1 and not self._stopping.is_set():
            self.trouble = "is starting"
        logger.info("%s: start %d on port %d", self.name, self.generation, self._port)
        return process

    async def _until_ready(self) -> None:
        """Ask for its health until it answers, or end it when that takes too long."""
        address = f"http://{self._host}:{self._port}{self._health_path}"
        patience = aiohttp.ClientTimeout(total=2)
        pause_s = 0.05
        try:
            async with (
                asyncio.timeout(self._start_s),
                aiohttp.ClientSession(headers=self.headers, timeout=patience) as session,
            ):
                while not await _answers(session, address):
                    await asyncio.sleep(pause_s)
                    pause_s = min(1.5 * pause_s, 0.5)
        except TimeoutError:
            self._too_slow = True
            self.trouble = f"was not ready within {self._start_s:g} s of its start"
            self._terminate()
            return
        if not self._stopping.is_set():
            self._ready_at = time.monotonic()
            self._was_ready = True
            self.trouble = ""
            self._settled.set()
            logger.info("%s: ready at %s", self.name, self.url)

    async def _read(self, stream: asyncio.StreamReader | None, *, has_pid: bool = False) -> None:
        """Log what the engine writes, line by line."""
        assert stream is not None  # noqa: S101  (asked for in `_spawn`)
        lines = _Lines()
        while chunk := await stream.read(65536):
            for line in lines.feed(chunk):
                if has_pid and self.pid is None:
                    self.pid = int(line.removeprefix("pid "))
                else:
                    self._lines.append(line)
                    logger.info("%s: %s", self.name, line)

    def _judge(self, code: int) -> None:
        """Say why the generation ended, and whether to try again."""
        if self._stopping.is_set():
            return
        if code < 0 and self.pid is not None:
            # Somebody killed the guard itself. The kernel killed the engine; these are its rest.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        if not self._too_slow:
            self.trouble = _ending(code)
        if code in REFUSALS and not self._was_ready:
            self._refusal = (
                f"provider '{self.name}': the engine cannot start: {self.trouble}."
                f" {self._last_words()}"
            )

    def _close(self) -> None:
        """Void the current generation."""
        self._ready_at = None
        self._ended.set()
        if not self._stopping.is_set():
            self._settled.clear()

    def _terminate(self) -> None:
        """Have the guard end the engine's tree."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()

    def _kill(self) -> None:
        """End the guard and the engine's group by force."""
        for pid, kill in ((self.pid, os.killpg), (self._process and self._process.pid, os.kill)):
            if pid is not None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    kill(pid, signal.SIGKILL)

    def _last_words(self) -> str:
        told = list(self._lines)[-TOLD_LINES:]
        return f"Its last words: {' | '.join(told)}" if told else "It said nothing."


class _Lines:
    """Cuts bytes into lines; of a line that is too long the beginning is kept."""

    def __init__(self) -> None:
        self._held = b""
        self._skipping = False

    def feed(self, chunk: bytes) -> list[str]:
        """Take bytes, give the lines that are whole."""
        *whole, rest = chunk.split(b"\n")
        lines: list[str] = []
        for piece in whole:
            if not self._skipping:
                lines.append(self._shown(self._held + piece))
            self._held, self._skipping = b"", False
        if not self._skipping:
            self._held += rest
            if len(self._held) > LINE_BYTES:
                lines.append(self._shown(self._held))
                self._held, self._skipping = b"", True
        return lines

    @staticmethod
    def _shown(line: bytes) -> str:
        text = line[:LINE_BYTES].decode(errors="replace").rstrip("\r")
        return f"{text}…" if len(line) > LINE_BYTES else text


def _ending(code: int) -> str:
    """Say how a process ended."""
    number = code - 128 if code > 128 else -code
    if number > 0:
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(number).name}"
    return f"ended with exit code {code}"


async def _answers(session: aiohttp.ClientSession, address: str) -> bool:
    try:
        async with session.get(address) as response:
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError, OSError):
        return False
