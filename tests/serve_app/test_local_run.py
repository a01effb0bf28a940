"""What `iop-edge run` looks at before it starts anything. Real starts are in `tests/serve`."""

from __future__ import annotations

from pathlib import Path

import pytest

from serve_app.command import main
from serve_app.local_run import CannotRunError, check_memory
from serve_app.serve_flags import serve_flags


def test_too_little_memory_is_told_before_the_start() -> None:
    """The line says how much is free and how much is needed."""
    with pytest.raises(CannotRunError, match="300 MiB are free and 1500 MiB are needed"):
        check_memory(300)
    check_memory(1500)


def test_haproxy_is_asked_for_on_linux_alone() -> None:
    """Elsewhere Serve's own proxy serves, with the same middleware before it."""
    assert serve_flags("linux")["RAY_SERVE_ENABLE_HA_PROXY"] == "1"
    assert "RAY_SERVE_ENABLE_HA_PROXY" not in serve_flags("darwin")
    name = "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"
    assert serve_flags("darwin")[name] == serve_flags("linux")[name]


def test_env_prints_the_flags_for_a_shell(capsys: pytest.CaptureFixture[str]) -> None:
    """`eval "$(iop-edge env)"` sets exactly the flags."""
    assert main(["env"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(serve_flags())
    assert all(line.startswith("export ") for line in lines)


def test_check_tells_every_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`iop-edge check` prints one line a fault with file and path, and exits with 2."""
    path = tmp_path / "edge.yaml"
    path.write_text("providers: [{name: a, type: openai_compat}, {name: a, type: nonsense}]\n")
    assert main(["check", str(path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) >= 3
    assert all(line.startswith(f"iop-edge: {path}: providers") for line in lines)


def test_check_accepts_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    """The configuration that comes with the project is right."""
    assert main(["check", "configs/edge.yaml"]) == 0
    assert "1 providers, 1 models, 0 routes" in capsys.readouterr().out


def test_check_warns_of_what_will_surprise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A warning is no fault: it is printed beside the summary, and the exit code is 0."""
    path = tmp_path / "edge.yaml"
    path.write_text(
        "openai: {strict_output: true}\n"
        "providers: [{name: mac, type: vllm_mlx, url: 'http://mac/v1'}]\n"
        "models: [{id: m, providers: [{provider: mac}]}]\n"
    )
    assert main(["check", str(path)]) == 0
    printed = capsys.readouterr()
    assert printed.err.startswith(f"iop-edge: {path}: warning: models[0]: strict output refuses")
    assert "1 providers, 1 models" in printed.out


@pytest.mark.parametrize("port", ["0", "65536", "x"])
def test_a_port_is_a_number(port: str) -> None:
    """What is no port is refused by its name."""
    with pytest.raises(SystemExit):
        main(["run", "--port", port])


def test_the_schema_is_checked_for_drift(tmp_path: Path) -> None:
    """A schema file that says something else than the settings fails the check."""
    path = tmp_path / "schema.json"
    assert main(["schema", "--output", str(path), "--check"]) == 1
    assert main(["schema", "--output", str(path)]) == 0
    assert main(["schema", "--output", str(path), "--check"]) == 0
