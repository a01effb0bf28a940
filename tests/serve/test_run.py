"""`iop-edge run`: what it refuses in one line, and that nothing of it stays."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.fakes.product import COMMAND, Product, ask, free_port, started, wait_for
from tests.fakes.upstream import Upstream

pytestmark = pytest.mark.serve

SMALL = (
    'providers: [{{name: fake, type: openai_compat, url: "{url}"}}]\nopenai: {{adapter: fake}}\n'
)


def _refused(*arguments: str, **environment: str) -> str:
    """What a run that cannot start prints; it is one line and the exit code says so."""
    done = subprocess.run(
        [COMMAND, "run", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | environment,  # noqa: TID251 - the child's
    )
    assert done.returncode in {1, 2}
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1
    return lines[0]


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    """A port that another program holds is named."""
    config = tmp_path / "edge.yaml"
    config.write_text(SMALL.format(url="http://127.0.0.1:9/v1"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        line = _refused("--config", str(config), "--port", port)
    assert f"port {port}" in line


def test_a_second_run_is_one_line(product: Product) -> None:
    """A second run on the same port names the first one's process."""
    arguments = ("--config", str(product.config), "--port", str(product.port))
    line = _refused(*arguments, IOP_TEST_KEY="sk-fake-key")
    assert str(product.process.pid) in line


def test_a_missing_model_file_is_one_line(tmp_path: Path) -> None:
    """An engine whose model is not there does not even start."""
    config = tmp_path / "edge.yaml"
    config.write_text(
        "providers: [{name: local, type: llama_cpp, engine: {model: /nowhere/model.gguf}}]\n"
        "models: [{id: m, providers: [{provider: local}]}]\n"
    )
    line = _refused("--config", str(config), "--port", str(free_port()))
    assert "/nowhere/model.gguf" in line


def test_a_missing_configuration_is_one_line(tmp_path: Path) -> None:
    """A file that is not there is named."""
    line = _refused("--config", str(tmp_path / "none.yaml"))
    assert "none.yaml" in line


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_stays_when_it_ends(upstream: Upstream, tmp_path: Path, number: int) -> None:
    """Ctrl-C, TERM and kill -9 all take Ray, Serve, HAProxy and every replica along."""
    with started(SMALL.format(url=upstream.url), tmp_path) as running:
        assert ask(running.api, "fake").status_code == 200
        below = running.descendants()
        assert len(below) > 5
        code = running.stop(number)
    assert code == (-9 if number == signal.SIGKILL else 0)
    psutil.wait_procs(below, timeout=15)
    assert [process for process in below if _alive(process)] == []


def _alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def test_serve_run_by_hand_works_the_same(upstream: Upstream, tmp_path: Path) -> None:
    """`serve run` on a Ray of one's own, in the environment that `iop-edge env` prints."""
    config = tmp_path / "edge.yaml"
    config.write_text(SMALL.format(url=upstream.url))
    port = free_port()
    text = Path("configs/serve_config.yaml").read_text()
    serve_config = tmp_path / "serve_config.yaml"
    serve_config.write_text(
        text.replace("port: 8000", f"port: {port}").replace("configs/edge.yaml", str(config))
    )
    folder = Path(COMMAND).parent
    script = f"""
        set -e
        eval "$({COMMAND} env)"
        export RAY_AUTH_MODE=disabled RAY_SERVE_HAPROXY_METRICS_PORT={free_port()}
        export RAY_SERVE_HAPROXY_STATS_PORT={free_port()}
        export RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S=0
        export RAY_SERVE_FALLBACK_PROXY_HTTP_PORT={free_port()}
        exec {folder}/serve run {serve_config}
    """
    folders = {"RAY_TMPDIR": f"/tmp/iop-hand-{port}", "RAY_ADDRESS": "local"}
    environment = os.environ | folders  # noqa: TID251 - the child's
    log = (tmp_path / "log.txt").open("w")
    process = subprocess.Popen(
        ["bash", "-c", script], env=environment, stdout=log, stderr=log, start_new_session=True
    )
    try:
        api = f"http://127.0.0.1:{port}/v1"
        wait_for(lambda: _answers(api) or process.poll() is not None, 120)
        assert process.poll() is None, (tmp_path / "log.txt").read_text()
    finally:
        below = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(60)
        for one in [process, *below]:
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                one.kill()
        log.close()


def _answers(api: str) -> bool:
    with contextlib.suppress(Exception):
        return ask(api, "fake").status_code == 200
    return False
