"""The environment that Ray Serve wants on every node, before Ray starts there.

One table for `iop-edge run`, for `iop-edge env` (a cluster made by hand) and for the manifests.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

#: Wanted wherever Ray Serve runs.
FLAGS_EVERYWHERE = {
    # Ours stands before Serve: one good request id, and none of Serve's own request switches.
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": ("serve_app.ingress.request_id:serve_middlewares"),
    # A log line is written when it happens, not when a thousand others have.
    "RAY_SERVE_REQUEST_PATH_LOG_BUFFER_SIZE": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}

#: HAProxy in place of Serve's Python proxy, and one event loop a replica. HAProxy is Linux only.
FLAGS_LINUX = {
    "RAY_SERVE_ENABLE_HA_PROXY": "1",
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
    # HAProxy would write a line a request for Serve to parse; requests are counted where they run.
    "RAY_SERVE_HAPROXY_METRICS_ENABLED": "0",
    # Room for the long headers that some callers send; HAProxy answers longer ones by itself.
    "RAY_SERVE_HAPROXY_TUNE_BUFSIZE": "65536",
    # Each holds a buffer of that size while its head arrives. Fewer where files are few.
    "RAY_SERVE_HAPROXY_MAXCONN": "10000",
    # An old HAProxy process outlives a reload for this long: longer than any stream.
    "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S": "7200",
}


def serve_flags(platform: str = sys.platform) -> dict[str, str]:
    """The variables for this kind of machine and this very environment."""
    if platform != "linux":
        return FLAGS_EVERYWHERE
    # More threads than processors only take turns with each other, and with the replicas.
    threads = str(max(1, (os.cpu_count() or 1) // 2))
    haproxy = Path(sys.executable).parent / "iop-edge-haproxy"
    own = {"RAY_SERVE_HAPROXY_BINARY_PATH": str(haproxy), "RAY_SERVE_HAPROXY_NBTHREAD": threads}
    return FLAGS_EVERYWHERE | FLAGS_LINUX | own
