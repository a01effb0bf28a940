"""Run one program and see to it that nothing of it outlives whoever started this one.

    python -I -S guard.py GRACE_S PROGRAM [ARGUMENT ...]

Rules of this file:
1. Standard library only, and little of it: it has to be up in some milliseconds.
2. The owner holds the other end of stdin. Its end, or TERM or INT, ends the program's whole tree:
   TERM, then KILL after the grace. However the owner dies, the kernel closes that pipe.
3. Where the program's leader dies by itself, what is left of its tree is killed at once.
4. The first line on stdout is `pid N`, the program's. All else there and on stderr is its own.
5. The exit code is the program's, or 128 + the signal that ended it; it comes last of all.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterator

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
CANNOT_START = 127
POLL_S = 0.02


def main(arguments: list[str]) -> int:
    """Run the program; give the exit code."""
    grace_s, argv = float(arguments[0]), arguments[1:]
    # Orphans of the tree become children of this process, so that none can get away.
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    wakeup = _signal_pipe()
    guard = os.getpid()
    leader = os.fork()
    if leader == 0:
        _become(argv, guard)
    tree = _Tree(leader)
    asked = _wait(tree, wakeup)
    tree.end(grace_s if asked else 0.0)
    return tree.exit_code


def _wait(tree: _Tree, wakeup: int) -> bool:
    """Wait until the leader has ended (False) or somebody wants it to end (True)."""
    while tree.still_runs():
        readable, _, _ = select.select([0, wakeup], [], [])
        if wakeup in readable and set(os.read(wakeup, 512)) & {signal.SIGTERM, signal.SIGINT}:
            return True
        if 0 in readable and not os.read(0, 512):
            return True
    return False


class _Tree:
    """The program's leader and all that descends from it."""

    def __init__(self, leader: int) -> None:
        self.exit_code = 0
        self._leader = leader
        self._leader_runs = True

    def still_runs(self) -> bool:
        """Collect what has ended; tell whether the leader still runs."""
        self._reap()
        return self._leader_runs

    def end(self, grace_s: float) -> None:
        """End every process: TERM if there is a grace, KILL after it, until none is left."""
        deadline = time.monotonic() + grace_s
        if grace_s > 0:
            self._signal(signal.SIGTERM)
        while self._reap():
            if time.monotonic() >= deadline:
                self._signal(signal.SIGKILL)
            time.sleep(POLL_S)
        if sys.platform != "linux":  # where orphans go elsewhere, the group is all there is
            self._signal_group(signal.SIGKILL)

    def _reap(self) -> bool:
        """Collect what has ended; tell whether anything is left."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                if pid == self._leader:
                    self._leader_runs = False
                    code = os.waitstatus_to_exitcode(status)
                    self.exit_code = code if code >= 0 else 128 - code
        return False

    def _signal(self, number: int) -> None:
        """Signal the group, in one stroke, and each descendant that has left it."""
        in_group = self._leader_runs  # its number cannot be another group's until it is collected
        if in_group:
            self._signal_group(number)
        for pid, group in _descendants(os.getpid()):
            if group != self._leader or not in_group:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)

    def _signal_group(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._leader, number)


def _descendants(root: int) -> list[tuple[int, int]]:
    """List every process below this one, with its group."""
    children: dict[int, list[tuple[int, int]]] = {}
    for pid, parent, group in _processes():
        children.setdefault(parent, []).append((pid, group))
    found: list[tuple[int, int]] = []
    todo = [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += [pid for pid, _ in below]
    return found


def _processes() -> Iterator[tuple[int, int, int]]:
    """Give number, parent and group of each process of this host."""
    if not os.path.isdir("/proc/self"):  # noqa: PTH112  (pathlib would double the start time)
        import subprocess

        words = ["ps", "-A", "-o", "pid=,ppid=,pgid="]
        listing = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603
        for line in listing.stdout.splitlines():
            pid, parent, group = map(int, line.split())
            yield pid, parent, group
        return
    for name in os.listdir("/proc"):  # noqa: PTH208  (as above)
        if not name.isdigit():
            continue
        with (
            contextlib.suppress(OSError),
            open(f"/proc/{name}/stat", "rb") as file,  # noqa: PTH123  (as above)
        ):
            # After the program's name, which may itself hold spaces and brackets.
            fields = file.read().rpartition(b")")[2].split()
            yield int(name), int(fields[1]), int(fields[2])


def _signal_pipe() -> int:
    """Have signals write their number into a pipe; give its end to read from."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, _noted)
    return read_end


def _noted(number: int, frame: object) -> None:
    """Do nothing: the number is in the pipe already."""


def _become(argv: list[str], guard: int) -> None:
    """In the child: turn into the program, in a session of its own."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        # Second line: should this guard be killed with -9, the kernel kills the leader.
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:
            return
        os.write(1, f"pid {os.getpid()}\n".encode())
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.execvp(argv[0], argv)  # noqa: S606  (it is what this program is for)
    except OSError as error:
        os.write(2, f"guard: cannot start {argv[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(CANNOT_START)


def _prctl(option: int, value: int) -> None:
    """Ask the kernel for a favour that only Linux knows."""
    if sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
