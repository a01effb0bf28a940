"""`/healthz` and `/readyz`: open to all, and telling nothing but what is missing."""

from __future__ import annotations

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from serve_app.ingress.gateway import Gateway


async def healthz(request: Request) -> Response:
    """This process answers."""
    del request
    return Response(to_json({"status": "ok"}), media_type="application/json")


async def readyz(request: Request) -> Response:
    """200 once every route can be served; until then 503 and what is missing."""
    gateway: Gateway = request.app.state.gateway
    missing = await gateway.readiness.missing()
    if not missing:
        return Response(to_json({"status": "ready"}), media_type="application/json")
    body = to_json({"status": "not ready", "missing": missing})
    return Response(body, 503, headers={"retry-after": "1"}, media_type="application/json")
