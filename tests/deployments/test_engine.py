"""A kept engine: started, watched, started again, stopped; with real processes that misbehave."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import aiohttp
import psutil
import pytest

from deployments import engine as engine_module
from deployments.engine import EngineProcess
from serve_app.config import Engine
from serve_app.errors import ConfigError, NotReadyError
from tests.deployments.programs import SERVER, STRAY, gone, number_in, running, runs, script


async def test_a_start_ends_in_an_address_that_answers() -> None:
    """When it is ready, the engine's address answers and nothing is wrong with it."""
    async with running(script()) as engine:
        await engine.wait_ready(10)
        assert (engine.ready, engine.generation, engine.trouble) == (True, 1, "")
        async with aiohttp.ClientSession() as session, session.get(engine.url) as response:
            assert response.status == 200
        assert engine.pid is not None
        assert runs(engine.pid)


async def test_a_second_start_changes_nothing() -> None:
    """`start` may be called again."""
    async with running(script()) as engine:
        await engine.wait_ready(10)
        await engine.start()
        assert engine.generation == 1


async def test_an_engine_killed_with_9_is_started_again() -> None:
    """Its death is known at once, and a new generation with another key is ready soon."""
    async with running(script()) as engine:
        await engine.wait_ready(10)
        first, key = engine.pid, engine.headers
        assert first is not None
        os.kill(first, signal.SIGKILL)
        async with asyncio.timeout(1):
            await engine.wait_ended(1)
        assert not engine.ready
        await engine.wait_ready(5)
        assert engine.generation == 2
        assert engine.pid != first
        assert engine.headers != key


async def test_a_past_generation_has_ended() -> None:
    """Whoever asks late for the end of a generation does not wait."""
    async with running(script()) as engine:
        await engine.wait_ready(10)
        async with asyncio.timeout(1):
            await engine.wait_ended(0)


async def test_deaths_are_answered_with_growing_pauses(caplog: pytest.LogCaptureFixture) -> None:
    """An engine that dies at once is not started in a busy loop."""
    caplog.set_level(logging.WARNING, logger="ray.serve.edge.engine")
    async with running(lambda _: [sys.executable, "-S", "-c", "raise SystemExit(1)"]) as engine:
        with pytest.raises(NotReadyError, match="ended with exit code 1"):
            await engine.wait_ready(3)
        async with asyncio.timeout(10):
            while len(caplog.records) < 3:  # noqa: ASYNC110  (a log gives no event)
                await asyncio.sleep(0.05)
    pauses = [record.getMessage()[-5:] for record in caplog.records]
    assert pauses[:3] == ["0.1 s", "0.2 s", "0.4 s"]


async def test_a_long_good_time_makes_the_next_pause_short(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After a time of being well the pauses begin anew."""
    monkeypatch.setattr(engine_module, "WELL_S", 0.0)
    caplog.set_level(logging.WARNING, logger="ray.serve.edge.engine")
    async with running(script()) as engine:
        for generation in (1, 2):
            await engine.wait_ready(10)
            assert engine.pid is not None
            os.kill(engine.pid, signal.SIGKILL)
            await engine.wait_ended(generation)
        await engine.wait_ready(10)
    assert [record.getMessage()[-5:] for record in caplog.records] == ["0.1 s", "0.1 s"]


# A start that fails


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        pytest.param(
            [sys.executable, "-c", "import sys; print('no such model'); sys.exit(2)"],
            "exit code 2. Its last words: no such model",
            id="misuse",
        ),
        pytest.param(
            ["/no/such/program"],
            "exit code 127. Its last words: guard: cannot start /no/such/program: No such file",
            id="no-program",
        ),
    ],
)
async def test_a_start_that_cannot_succeed_fails_at_once(command: list[str], reason: str) -> None:
    """What the operator has to mend is an error with the engine's words, and no second try."""
    async with running(lambda _: command) as engine:
        with pytest.raises(ConfigError, match="provider 'test': the engine cannot start") as caught:
            await engine.wait_ready(10)
        assert reason in caught.value.faults[0]
        assert engine.generation == 1


async def test_a_refusal_after_a_good_start_is_tried_again(tmp_path: Path) -> None:
    """Once it has run, no exit code ends the trying: a file may be away for a moment only."""
    flag = tmp_path / "away"
    before = f"if os.path.exists({str(flag)!r}): sys.exit(2)"
    async with running(script(before)) as engine:
        await engine.wait_ready(10)
        flag.touch()
        assert engine.pid is not None
        os.kill(engine.pid, signal.SIGKILL)
        await engine.wait_ended(1)
        while "exit code 2" not in engine.trouble:  # the next start has been refused
            with pytest.raises(NotReadyError):
                await engine.wait_ready(1)
        flag.unlink()
        await engine.wait_ready(10)


async def test_a_start_that_takes_too_long_is_ended_and_told() -> None:
    """Without an answer in time the engine is ended, and its last lines are in the error."""
    command = [sys.executable, "-c", "import time; print('loading', flush=True); time.sleep(600)"]
    async with running(lambda _: command, Engine(start_s=3, stop_grace_s=2)) as engine:
        with pytest.raises(NotReadyError, match=r"is starting. Its last words: loading"):
            await engine.wait_ready(2)
        first = engine.pid
        assert first is not None
        await engine.wait_ended(1)
        assert not runs(first)
        assert engine.trouble == "was not ready within 3 s of its start"


async def test_a_command_that_cannot_be_made_is_not_hidden() -> None:
    """A fault in the making of the command line reaches whoever waits for the engine."""

    def command(port: int) -> list[str]:
        raise LookupError(port)

    async with running(command) as engine:
        with pytest.raises(LookupError):
            await engine.wait_ready(5)


async def test_an_address_that_is_not_ours_is_told() -> None:
    """Where no port can be had, the reason is told, and it is tried again."""
    engine = EngineProcess("test", script(), Engine(), host="192.0.2.1")
    await engine.start()
    try:
        with pytest.raises(NotReadyError, match="cannot be started: Cannot assign"):
            await engine.wait_ready(2)
    finally:
        await engine.stop()


async def test_an_unhealthy_answer_is_not_ready() -> None:
    """Only 200 means ready."""
    unwell = SERVER.format(before="").replace("200", "503")
    async with running(lambda port: [sys.executable, "-c", unwell, str(port)]) as engine:
        with pytest.raises(NotReadyError):
            await engine.wait_ready(1)


# A stop


async def test_a_stop_leaves_no_process() -> None:
    """After `stop` neither the engine nor its guard is there; a second stop is nothing."""
    before = set(psutil.Process().children(recursive=True))
    async with running(script()) as engine:
        await engine.wait_ready(10)
        await asyncio.gather(engine.stop(), engine.stop())
        assert set(psutil.Process().children(recursive=True)) == before
        assert (engine.ready, engine.trouble) == (False, "stopped")


async def test_a_stop_ends_the_generation_before_the_process() -> None:
    """Whoever waits for the end of a generation hears of a stop at once, and so does a waiter."""
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    async with running(script(deaf), Engine(stop_grace_s=1)) as engine:
        await engine.wait_ready(10)
        stopping = asyncio.ensure_future(engine.stop())  # noqa: TID251  (awaited below)
        async with asyncio.timeout(0.5):
            await engine.wait_ended(1)
            with pytest.raises(NotReadyError, match="stopped"):
                await engine.wait_ready()
        await stopping


async def test_a_deaf_engine_is_killed_after_the_grace() -> None:
    """An engine that ignores TERM ends nevertheless, after the grace."""
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    async with running(script(deaf), Engine(stop_grace_s=0.5)) as engine:
        await engine.wait_ready(10)
        pid = engine.pid
        assert pid is not None
        async with asyncio.timeout(4):
            await engine.stop()
        assert not runs(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives orphans to the guard")
async def test_a_stop_also_ends_what_left_the_group(tmp_path: Path) -> None:
    """A deaf grandchild in a session of its own is gone after `stop`."""
    path = str(tmp_path / "pid")
    async with running(script(STRAY.format(path=path)), Engine(stop_grace_s=0.5)) as engine:
        await engine.wait_ready(10)
        stray = await number_in(tmp_path / "pid")
        await engine.stop()
        assert not runs(stray)


async def test_a_stop_before_the_start_is_for_good() -> None:
    """An engine that was stopped does not start."""
    engine = EngineProcess("test", script(), Engine())
    await engine.stop()
    await engine.start()
    with pytest.raises(NotReadyError, match="stopped"):
        await engine.wait_ready(1)
    assert engine.generation == 0


@pytest.mark.skipif(sys.platform != "linux", reason="a favour of the Linux kernel")
async def test_a_killed_guard_is_an_ended_engine() -> None:
    """If the guard itself is killed, its engine is not left over, and a new one is started."""
    async with running(script()) as engine:
        await engine.wait_ready(10)
        first = engine.pid
        assert first is not None
        psutil.Process(first).parent().kill()  # pyright: ignore[reportOptionalMemberAccess]
        assert await gone(first)
        await engine.wait_ended(1)
        await engine.wait_ready(5)
        assert engine.generation == 2


OWNER = """
import asyncio, sys
from deployments.engine import EngineProcess
from serve_app.config import Engine
from tests.deployments.programs import script

async def main():
    engine = EngineProcess("test", script(), Engine())
    await engine.start()
    await engine.wait_ready(10)
    print(engine.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_the_owner_killed_with_9_leaves_no_engine() -> None:
    """A replica that dies by SIGKILL takes its engine along within seconds."""
    owner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", textwrap.dedent(OWNER)),
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
    )
    assert owner.stdout is not None
    pid = int(await owner.stdout.readline())
    owner.kill()
    await owner.communicate()
    assert await gone(pid)


# What it reads and what it passes on


async def test_a_line_of_megabytes_does_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    """Of a line without end the beginning is logged, and the next line as ever."""
    caplog.set_level(logging.INFO, logger="ray.serve.edge.engine")
    flood = "sys.stdout.write('x' * (5 << 20) + '\\nafter\\n'); sys.stdout.flush()"
    async with running(script(flood)) as engine:
        await engine.wait_ready(20)
    lines = [record.getMessage() for record in caplog.records]
    assert f"test: {'x' * engine_module.LINE_BYTES}…" in lines
    assert "test: after" in lines


async def test_both_streams_are_logged_under_the_providers_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Every line of the engine is a log line that says whose it is, whatever its bytes."""
    caplog.set_level(logging.INFO, logger="ray.serve.edge.engine")
    noise = (
        "os.write(1, b'to out \\xff\\r\\n'); os.write(2, b'to err\\n');"
        "os.write(1, 'one\\u2028line\\n'.encode())"
    )
    async with running(script(noise)) as engine:
        await engine.wait_ready(10)
    lines = {record.getMessage() for record in caplog.records}
    assert {"test: to out \ufffd", "test: to err", "test: one\u2028line"} <= lines


async def test_our_secrets_stay_out_of_the_engines_environment(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What is withheld is not in the engine's environment; the rest of ours is."""
    caplog.set_level(logging.INFO, logger="ray.serve.edge.engine")
    monkeypatch.setenv("EDGE_TEST_TOKEN", "secret")
    monkeypatch.setenv("EDGE_TEST_OTHER", "passed")
    look = "print(os.environ.get('EDGE_TEST_TOKEN'), os.environ.get('EDGE_TEST_OTHER'), flush=True)"
    async with running(script(look), withhold={"EDGE_TEST_TOKEN"}) as engine:
        await engine.wait_ready(10)
    assert "test: None passed" in [record.getMessage() for record in caplog.records]
