"""The guard: whatever ends, in whatever way, no process of the engine is left."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from deployments.engine import GUARD
from tests.deployments.programs import gone, number_in, runs

DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(600)
"""
#: Two generations below the leader, in a session of its own, without a living parent.
ESCAPE = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    open(sys.argv[1], "w").write(str(os.getpid()))
    time.sleep(600)
os.wait()
"""
#: What owns a guard, as a replica does, and lives until it is killed.
OWNER = """
import subprocess, sys, time
guard = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)
time.sleep(600)
"""


def guarded(*argv: str, grace_s: float = 5) -> list[str]:
    return [sys.executable, "-I", "-S", str(GUARD), str(grace_s), *argv]


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(code), *arguments]


@asynccontextmanager
async def guard(
    *argv: str, grace_s: float = 5
) -> AsyncGenerator[tuple[asyncio.subprocess.Process, int]]:
    """Run a program under a guard; give the guard and the program's number."""
    process = await asyncio.create_subprocess_exec(
        *guarded(*argv, grace_s=grace_s),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    first = await process.stdout.readline()
    try:
        yield process, int(first.removeprefix(b"pid "))
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        pytest.param("pass", 0, id="well"),
        pytest.param("raise SystemExit(7)", 7, id="code"),
        pytest.param("import os; os.kill(os.getpid(), 9)", 137, id="signal"),
    ],
)
async def test_the_exit_code_is_the_programs(code: str, expected: int) -> None:
    """The guard ends as its program ended, a signal as 128 and its number."""
    async with guard(*python(code)) as (process, _):
        assert await process.wait() == expected


async def test_a_program_that_is_not_there_is_named() -> None:
    """What cannot be started is said on stderr, with the shell's exit code for it."""
    async with guard("/no/such/program") as (process, _):
        _, said = await process.communicate()
        assert (process.returncode, said) == (
            127,
            b"guard: cannot start /no/such/program: No such file or directory\n",
        )


async def test_output_passes_through() -> None:
    """Both streams are the program's own; its input is empty."""
    code = "import sys; print('out', sys.stdin.read()); print('err', file=sys.stderr)"
    async with guard(*python(code)) as (process, _):
        assert process.stdout is not None
        assert process.stderr is not None
        assert await process.stdout.read() == b"out \n"
        assert await process.stderr.read() == b"err\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_program(number: signal.Signals) -> None:
    """TERM and INT to the guard are TERM to the program."""
    async with guard("sleep", "600") as (process, pid):
        process.send_signal(number)
        assert await process.wait() == 128 + signal.SIGTERM
        assert not runs(pid)


async def test_the_end_of_stdin_ends_the_program() -> None:
    """The owner's end of the pipe going away is enough."""
    async with guard("sleep", "600") as (process, pid):
        assert process.stdin is not None
        process.stdin.close()
        assert await process.wait() == 128 + signal.SIGTERM
        assert not runs(pid)


async def test_the_program_may_end_in_its_own_way() -> None:
    """A program that answers TERM within the grace keeps its exit code."""
    code = """
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
        print("up", flush=True)
        time.sleep(600)
    """
    async with guard(*python(code)) as (process, _):
        assert process.stdout is not None
        await process.stdout.readline()
        process.terminate()
        assert await process.wait() == 3


async def test_a_program_deaf_to_term_is_killed_after_the_grace() -> None:
    """KILL comes after the grace, and not before."""
    async with guard(*python(DEAF), grace_s=0.5) as (
        process,
        _,
    ):
        assert process.stdout is not None
        await process.stdout.readline()
        began = asyncio.get_running_loop().time()
        process.terminate()
        assert await process.wait() == 128 + signal.SIGKILL
        assert 0.4 < asyncio.get_running_loop().time() - began < 3


async def test_a_stopped_program_is_killed_after_the_grace() -> None:
    """A program that is frozen and so cannot hear TERM ends too."""
    async with guard("sleep", "600", grace_s=0.3) as (process, pid):
        os.kill(pid, signal.SIGSTOP)
        while psutil.Process(pid).status() != psutil.STATUS_STOPPED:  # noqa: ASYNC110  (no event)
            await asyncio.sleep(0.01)
        process.terminate()
        assert await process.wait() == 128 + signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives orphans to the guard")
@pytest.mark.parametrize("leader_killed", [False, True], ids=["asked", "leader-killed"])
async def test_a_descendant_that_left_the_group_ends_too(
    tmp_path: Path, leader_killed: bool
) -> None:
    """Neither a session of its own nor a dead parent lets a process get away."""
    code = ESCAPE + "time.sleep(600)"
    async with guard(*python(code, str(tmp_path / "pid"))) as (process, pid):
        stray = await number_in(tmp_path / "pid")
        if leader_killed:
            os.kill(pid, signal.SIGKILL)
        else:
            process.terminate()
        assert await process.wait() == 128 + (9 if leader_killed else 15)
        assert not runs(stray)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives orphans to the guard")
async def test_what_a_dead_program_leaves_is_killed_at_once(tmp_path: Path) -> None:
    """A leader that ends by itself takes its descendants along, with no grace."""
    code = ESCAPE + "sys.exit(4)"
    async with guard(*python(code, str(tmp_path / "pid")), grace_s=60) as (process, _):
        async with asyncio.timeout(5):
            assert await process.wait() == 4
        assert not runs(await number_in(tmp_path / "pid"))


async def test_the_owner_killed_with_9_takes_the_program_along() -> None:
    """A replica that dies by SIGKILL leaves no engine, though it could not clean up."""
    owner = await asyncio.create_subprocess_exec(
        *python(OWNER, *guarded("sleep", "600")), stdout=subprocess.PIPE
    )
    assert owner.stdout is not None
    pid = int((await owner.stdout.readline()).removeprefix(b"pid "))
    owner.kill()
    await owner.wait()
    assert await gone(pid)
    await owner.stdout.read()


@pytest.mark.skipif(sys.platform != "linux", reason="a favour of the Linux kernel")
async def test_the_guard_killed_with_9_takes_the_program_along() -> None:
    """Even without its guard the program does not live on."""
    async with guard("sleep", "600") as (process, pid):
        process.kill()
        assert await gone(pid)
