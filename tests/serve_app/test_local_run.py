"""What `iop-edge run` looks at before it starts anything. Real starts are in `tests/serve`."""

from __future__ import annotations

from pathlib import Path

import pytest

from serve_app.command import main
from serve_app.local_run import (
    CannotRunError,
    check_host,
    check_memory,
    remove_old_sessions,
    telling_lines,
    token_word,
)
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
def test_a_port_is_a_number(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What is no port is refused with a sentence."""
    with pytest.raises(SystemExit):
        main(["run", "--port", port])
    assert "a port is a number from 1 to 65535" in capsys.readouterr().err


def test_a_missing_file_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    """The line about a file that is not there holds its path once."""
    assert main(["check", "/nowhere/edge.yaml"]) == 2
    assert capsys.readouterr().err.count("/nowhere/edge.yaml") == 1


@pytest.mark.parametrize("host", ["::1", "::", "192.0.2.1", "example.org", ""])
def test_a_host_is_loopback_or_everything(host: str) -> None:
    """An address at which HAProxy would not find the replicas is refused before the start."""
    with pytest.raises(CannotRunError, match=r"has to be one of 127\.0\.0\.1"):
        check_host(host)
    for good in ("localhost", "127.0.0.1", "0.0.0.0"):
        check_host(good)


@pytest.mark.parametrize(
    ("written", "word"),
    [
        ("${MY_TOKEN}", "$MY_TOKEN"),
        ("'${MY_TOKEN:-}'", "$MY_TOKEN"),
        ("${OTHER:-secret}", "<token>"),
        ("prefix-${MY_TOKEN}", "<token>"),
        ("secret", "<token>"),
    ],
)
def test_the_line_to_try_names_the_variable(
    written: str, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable that holds the token is named; a token that stands in the file is not shown."""
    monkeypatch.setenv("MY_TOKEN", "secret")
    path = tmp_path / "edge.yaml"
    path.write_text(f"openai:\n  bearer_token: {written}\n")
    assert token_word(path, "secret") == word


def test_only_the_last_session_stays(tmp_path: Path) -> None:
    """Older sessions go; the last one stays, and no link is followed."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    ray = tmp_path / "run/ray"
    for day in ("01", "02", "03"):
        (ray / f"session_2026-01-{day}").mkdir(parents=True)
    (ray / "session_2026-01-01/link").symlink_to(outside)
    (ray / "session_2026-01-00").symlink_to(outside)
    (ray / "session_latest").symlink_to(ray / "session_2026-01-03")
    remove_old_sessions(tmp_path / "run")
    names = sorted(path.name for path in ray.iterdir() if not path.is_symlink())
    assert names == ["session_2026-01-03"]
    assert (outside / "precious").exists()


def test_rays_state_does_not_hide_the_reason() -> None:
    """Of Ray's last words, those about its own state are left out."""
    text = (
        "\x1b[31mSome Ray subprocesses exited unexpectedly:\x1b[39m\n"
        "[2026-12-01 02:30:59,070 I 18470 18470] (gcs_server) gcs_server.cc:1: Event stats:\n"
        "\n\nGlobal stats: 231 total (1 active)\nQueueing time: mean = 0.16ms\n"
        "\tNodeInfoGcsService - 1 total (0 active), Execution time: mean = 0.61ms\n"
        "[2026-12-01 02:30:59,070 E 1 1] logging.cc:474: *** SIGTERM received at time=1 ***\n"
        '  File "serve_app/app.py", line 1, in build\n'
        "Remaining processes will be killed.\n"
    )
    assert telling_lines(text) == [
        "Some Ray subprocesses exited unexpectedly:",
        '  File "serve_app/app.py", line 1, in build',
        "Remaining processes will be killed.",
    ]


def test_the_schema_is_checked_for_drift(tmp_path: Path) -> None:
    """A schema file that says something else than the settings fails the check."""
    path = tmp_path / "schema.json"
    assert main(["schema", "--output", str(path), "--check"]) == 1
    assert main(["schema", "--output", str(path)]) == 0
    assert main(["schema", "--output", str(path), "--check"]) == 0
