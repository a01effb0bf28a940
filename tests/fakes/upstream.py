"""A real HTTP server that plays an OpenAI-compatible inference server, well or badly.

    async with Upstream() as upstream:
        upstream.script = [text("Hi"), (Reset(),)]   # one answer a request, then `default`
        ... call upstream.url + "/chat/completions" ...
        assert upstream.requests[0].json["stream"] is True

Which answer a POST gets, first that applies: the header `x-fake-script: <name>`, the model name
`script:<name>` (see `answers.named` and `Upstream.named`), the next of `script`, `default`.
`GET .../models` and `GET /health` are answered by themselves, `GET /_state` tells the counts to
another process. The server runs in a thread with an event loop of its own; it is raw asyncio,
because what it has to get wrong is below what a web framework lets one touch.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Self

from tests.fakes.answers import (
    Answer,
    Chunk,
    Close,
    End,
    Hang,
    Head,
    Pause,
    Reset,
    Script,
    Send,
    golden,
    hello,
    named,
    reply,
    text,
)
from tests.fakes.connection import (
    Connection,
    CutError,
    LeftError,
    Outcome,
    Received,
    WatchedProtocol,
)
from tests.fakes.sse import Json, chunk, finish, frame, frames, usage

__all__ = [
    "Chunk", "Close", "End", "Hang", "Head", "Pause", "Received", "Reset", "Send", "Upstream",
    "chunk", "finish", "frame", "frames", "golden", "reply", "text", "usage",
]  # fmt: skip


@dataclass
class Upstream:
    """The fake server; a context manager, sync and async.

    Attributes:
        default: The answer when nothing else applies.
        script: Answers for the next requests, used up from the front.
        named: Answers by name, besides those of `answers.named`.
        healthy: What `/health` says.
        models: What `/models` lists.
        port: Where to listen; 0 takes a free port, which is then written here.
        requests: All POSTs in the order in which they came, also those still at work.
        connections: How many connections are open.
    """

    default: Script = hello
    script: list[Script] = field(default_factory=list[Script])
    named: dict[str, Script] = field(default_factory=dict[str, Script])
    healthy: bool = True
    models: list[str] = field(default_factory=lambda: ["fake"])
    port: int = 0
    requests: list[Received] = field(default_factory=list[Received])
    connections: int = 0

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event
        self._released: asyncio.Event

    @property
    def url(self) -> str:
        """Address of the API, as a provider's `url` has it."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def active(self) -> int:
        """Requests being answered now whose client is still there."""
        return sum(request.outcome == "active" for request in self.requests)

    @property
    def disconnected(self) -> int:
        """Requests whose client left before the answer's end."""
        return sum(request.outcome == "left" for request in self.requests)

    def state(self) -> Json:
        """The counts and the requests, as `GET /_state` gives them."""
        requests = [
            {"method": r.method, "path": r.path, "headers": r.headers, "json": r.json,
             "arrived_s": r.arrived_s, "outcome": r.outcome}
            for r in list(self.requests)
        ]  # fmt: skip
        return {
            "active": self.active,
            "disconnected": self.disconnected,
            "connections": self.connections,
            "requests": requests,
        }

    def wait(self, holds: Callable[[Self], bool], timeout_s: float = 5.0) -> None:
        """Blocks until `holds(upstream)`; looked at whenever something changes.

        Raises:
            TimeoutError: It did not come true in time.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: holds(self), timeout_s):
                raise TimeoutError(f"not within {timeout_s} s; state: {self.state()}")

    async def until(self, holds: Callable[[Self], bool], timeout_s: float = 5.0) -> None:
        """`wait` for a test that runs in an event loop."""
        await asyncio.to_thread(self.wait, holds, timeout_s)

    def release(self) -> None:
        """Lets every answer that hangs now go on to its next step."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._let_go)

    def start(self) -> Self:
        """Starts the thread and returns once the port is bound."""
        self._thread = threading.Thread(target=self._run, name="fake-upstream", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self

    def stop(self) -> None:
        """Breaks every connection and waits for the thread's end; may be called twice."""
        thread, loop, self._thread = self._thread, self._loop, None
        if thread is None or loop is None:
            return
        if thread.is_alive():
            loop.call_soon_threadsafe(self._stopping.set)
        thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - told to the thread that started us
            self._failure = error
        finally:
            self._loop = None
            self._ready.set()

    async def _serve(self) -> None:
        loop = self._loop = asyncio.get_running_loop()
        self._stopping, self._released = asyncio.Event(), asyncio.Event()
        tasks: set[asyncio.Task[None]] = set()

        def begin(connection: Connection) -> None:
            task = loop.create_task(self._converse(connection))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        def protocol() -> asyncio.Protocol:
            return WatchedProtocol(begin)

        server = await loop.create_server(protocol, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stopping.wait()
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # The sockets are closed in the loop's next round.
        await asyncio.sleep(0)

    async def _converse(self, connection: Connection) -> None:
        self._count(1)
        try:
            while (request := await connection.read()) is not None:
                await self._respond(connection, request)
        except (CutError, LeftError, ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            connection.close(at_once=self._stopping.is_set())
            self._count(-1)

    async def _respond(self, connection: Connection, request: Received) -> None:
        """Carries out the request's answer and notes how it ended."""
        if request.method == "GET":
            await self._carry_out(connection, self._about(request.path))
            return
        self._note(request, "active")
        try:
            await self._carry_out(connection, self._choose(request))
        except (LeftError, ConnectionError):
            self._note(request, "left")
            raise
        except BaseException:  # told to break it off, stopped, or a fault in the test's own answer
            self._note(request, "cut")
            raise
        self._note(request, "done")

    async def _carry_out(self, connection: Connection, answer: Answer) -> None:
        for step in answer:
            if connection.left.is_set():
                raise LeftError
            match step:
                case Pause(seconds):
                    await connection.idle(asyncio.sleep(seconds))
                case Hang():
                    await connection.idle(self._released.wait())
                case Reset() | Close():
                    connection.break_off(reset=isinstance(step, Reset))
                case Head() | Send() | Chunk() | End():
                    await connection.write(step)

    def _choose(self, request: Received) -> Answer:
        body = request.json
        model = str(body.get("model", ""))
        name = request.headers.get("x-fake-script") or model.removeprefix("script:")
        script: Script | None = None
        if "x-fake-script" in request.headers or model.startswith("script:"):
            script = self.named.get(name) or named(name)
            if script is None:
                return reply(404, {"error": {"message": f"no script {name!r}"}})
        if script is None:
            script = self.script.pop(0) if self.script else self.default
        return script(body) if callable(script) else script

    def _about(self, path: str) -> Answer:
        """The answer to a GET."""
        path = path.partition("?")[0]
        if path == "/_state":
            return reply(200, self.state())
        if path == "/health":
            return reply(200 if self.healthy else 503, {"status": "ok" if self.healthy else "no"})
        if path.endswith("/models"):
            data = [{"id": name, "object": "model", "owned_by": "fake"} for name in self.models]
            return reply(200, {"object": "list", "data": data})
        return reply(404, {"error": {"message": f"no {path}"}})

    def _note(self, request: Received, outcome: Outcome) -> None:
        with self._changed:
            if outcome == "active":
                self.requests.append(request)
            request.outcome = outcome
            self._changed.notify_all()

    def _count(self, change: int) -> None:
        with self._changed:
            self.connections += change
            self._changed.notify_all()

    def _let_go(self) -> None:
        self._released.set()
        self._released = asyncio.Event()


def main() -> None:
    """Serves until INT or TERM, and prints its address first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    ended = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    with Upstream(port=parser.parse_args().port) as upstream:
        print(upstream.url, flush=True)  # noqa: T201 - how the parent learns the port
        ended.wait()


if __name__ == "__main__":
    main()
