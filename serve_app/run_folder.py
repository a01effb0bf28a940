"""The folder of one `iop-edge run`: its lock, its logs, what earlier runs left in it."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import IO


class CannotRunError(Exception):
    """Why nothing was started, or why it had to stop again. One line for the user."""


@contextlib.contextmanager
def only_one(port: int) -> Generator[Path]:
    """A folder of this run's own; only one run a port has it."""
    folder = _folder(port)
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid() or folder.is_symlink():
        raise CannotRunError(f"{folder} belongs to somebody else")
    with (folder / "pid").open("a+") as lock:
        try:
            _lock(lock)
        except OSError:
            lock.seek(0)
            raise CannotRunError(
                f"another 'iop-edge run' (pid {lock.read().strip()}) is using port {port}"
            ) from None
        try:
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            yield folder
        finally:
            lock.truncate(0)


def remove_old_sessions(folder: Path) -> None:
    """Remove what earlier runs on this port left, but for the last one: somebody may read its logs.

    Ray makes a folder a start and removes none. Nobody uses them: this run holds the port's lock.
    """
    ray = folder / "ray"
    if ray.is_symlink():
        return
    # Their names begin with the time of the start.
    sessions = sorted(p for p in ray.glob("session_*") if p.is_dir() and not p.is_symlink())
    for session in sessions[:-1]:
        shutil.rmtree(session, ignore_errors=True)
    proxy = folder / "h"
    if not proxy.is_symlink():
        shutil.rmtree(proxy, ignore_errors=True)


def _lock(file: IO[str]) -> None:
    import fcntl

    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _folder(port: int) -> Path:
    # Short on purpose: HAProxy's sockets are 71 characters below it, of the 97 that it allows.
    return Path(tempfile.gettempdir() if sys.platform == "linux" else "/tmp") / (  # noqa: S108
        f"iop-{os.getuid()}-{port}"
    )


def holder(port: int) -> str:
    """The pid of the run that holds a port, or nothing."""
    try:
        return (_folder(port) / "pid").read_text().strip()
    except OSError:
        return ""
