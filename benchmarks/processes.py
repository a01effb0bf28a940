"""Processes of a benchmark: started, waited for, their CPU time read, and ended by id."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psutil

HERE = Path(__file__).parent
#: Every process started here, and every one that it starts, has this in its environment: it finds
#: those again that went to the background on their own, as Ray's do.
MARK = "GATEWAY_BENCHMARK"


class StartError(Exception):
    """A process did not come up."""


def free_port() -> int:
    """A port of the loopback that nobody listens at now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@dataclass
class Program:
    """One program and all that it starts; a context manager."""

    name: str
    command: Sequence[str]
    log: Path
    #: Signals to end it with, each with the seconds to wait after it; KILL comes after them.
    goodbye: Sequence[tuple[signal.Signals, float]] = ((signal.SIGTERM, 10.0),)
    environment: dict[str, str] = field(default_factory=dict[str, str])
    folder: Path | None = None

    def __post_init__(self) -> None:
        self._mark = uuid.uuid4().hex
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        marked = self.environment | {MARK: self._mark}
        command = ["env", *(f"{key}={value}" for key, value in marked.items()), *self.command]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder
            )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        for number, patience_s in self.goodbye:
            if self._process.poll() is not None:
                break
            self._process.send_signal(number)
            try:
                self._process.wait(patience_s)
            except subprocess.TimeoutExpired:
                continue
        left = self.family()
        for process in left:
            process.terminate()
        alive = psutil.wait_procs(left, timeout=10)[1]
        for process in alive:
            process.kill()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def wait_for(self, url: str, patience_s: float, accept: Callable[[int], bool]) -> None:
        """Waits until a GET of `url` has a status that is accepted.

        Raises:
            StartError: The program ended, or the time was up.
        """
        assert self._process is not None
        deadline_s = time.monotonic() + patience_s
        said = "nothing"
        while time.monotonic() < deadline_s:
            if self._process.poll() is not None:
                raise StartError(f"{self.name} ended:\n{self.last_lines()}")
            try:
                with urllib.request.urlopen(url, timeout=2) as answer:
                    said = str(answer.status)
            except urllib.error.HTTPError as error:
                said = str(error.code)
            except OSError as error:
                said = str(error)
            if said.isdigit() and accept(int(said)):
                return
            time.sleep(0.2)
        raise StartError(f"{self.name}: {url} said {said}:\n{self.last_lines()}")

    def last_lines(self) -> str:
        """The end of what it printed."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])

    def family(self) -> list[psutil.Process]:
        """The program and what it started, also what went to the background, as far as alive.

        Programs that rename themselves lose the mark, so children of marked ones count as well.
        """
        assert self._process is not None
        found: dict[int, psutil.Process] = {}
        for process in psutil.process_iter():
            try:
                own = process.pid == self._process.pid
                if own or process.environ().get(MARK) == self._mark:
                    found[process.pid] = process
                    found |= {child.pid: child for child in process.children(recursive=True)}
            except psutil.Error:
                continue
        return list(found.values())


def cpu_seconds(family: Sequence[psutil.Process]) -> dict[int, float]:
    """CPU time spent so far, by process id."""
    spent: dict[int, float] = {}
    for process in family:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            spent[process.pid] = times.user + times.system
    return spent


def titles(family: Sequence[psutil.Process]) -> dict[int, str]:
    """A short name of each process. Ray's change theirs all the time, so they are no keys."""
    found: dict[int, str] = {}
    for process in family:
        with contextlib.suppress(psutil.Error):
            found[process.pid] = title(process)
    return found


def busy_seconds() -> float:
    """CPU time that the whole machine has spent on anything."""
    times = psutil.cpu_times()
    return times.user + times.nice + times.system


def client_seconds() -> float:
    """CPU time of the load processes that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def title(process: psutil.Process) -> str:
    """A short name: Ray's workers write theirs into the command line."""
    line = process.cmdline()
    first = line[0] if line else process.name()
    if first.startswith("ray::"):
        # Without the method that it is in at the moment.
        return first.split("(")[0].split()[0].split(".")[0]
    scripts = [word for word in line[1:3] if word.endswith(".py") or "/" in word]
    return Path(scripts[0] if "python" in first and scripts else first).name or process.name()


def measure(
    url: str, key: str, connections: int, *, seconds: float, waves: int, tools: bool = False
) -> dict[str, Any]:
    """One measurement by `load.py`, in a process of its own.

    Raises:
        StartError: The gateway gave a wrong answer, or none.
    """
    command = [
        sys.executable, str(HERE / "load.py"), "--url", url, "--connections", str(connections),
        "--seconds", str(seconds), "--waves", str(waves), "--key", key,
        *(["--tools"] if tools else []),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    if done.returncode:
        raise StartError(f"{url}: {done.stderr.strip()[-1500:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result
