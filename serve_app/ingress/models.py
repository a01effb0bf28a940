"""`GET /v1/models` and `GET /v1/models/{id}` (clause ROUTE-4)."""

from __future__ import annotations

import time

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from serve_app.errors import Code, NotFoundError
from serve_app.ingress.gateway import Gateway
from serve_app.runs import Json

#: The catalog has no dates of its own; clients only want an integer.
_CREATED = int(time.time())


def _model(name: str) -> Json:
    return {"id": name, "object": "model", "created": _CREATED, "owned_by": "iop-edge"}


async def list_models(request: Request) -> Response:
    """Every model that a route or the pool catalog names."""
    gateway: Gateway = request.app.state.gateway
    models = [_model(name) for name in gateway.current.catalog.models()]
    body = to_json({"object": "list", "data": models})
    return Response(body, media_type="application/json")


async def retrieve_model(request: Request) -> Response:
    """One of them.

    Raises:
        NotFoundError: It is not listed.
    """
    gateway: Gateway = request.app.state.gateway
    name: str = request.path_params["model"]
    if name not in gateway.current.catalog.models():
        message = f"The model '{name[:100]}' does not exist. GET /v1/models lists what is served."
        raise NotFoundError(message, code=Code.MODEL_NOT_FOUND)
    return Response(to_json(_model(name)), media_type="application/json")
