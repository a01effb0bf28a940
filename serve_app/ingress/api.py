"""The ASGI application: one ordered list of what a request passes, one list of endpoints.

It knows nothing of Ray Serve: any ASGI server can run it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from serve_app.errors import NotFoundError
from serve_app.ingress.auth import Auth
from serve_app.ingress.chat import chat_completions
from serve_app.ingress.failures import Failures, of_router
from serve_app.ingress.gateway import Gateway
from serve_app.ingress.health import healthz, readyz
from serve_app.ingress.models import list_models, retrieve_model
from serve_app.ingress.request_id import RequestId

_COMPLETIONS_GONE = (
    "The legacy completions endpoint is not offered. Use /v1/chat/completions for messages or "
    "/v1/responses for text."
)


async def completions(request: Request) -> Response:
    """Clause ROUTE-5.

    Raises:
        NotFoundError: Always.
    """
    del request
    raise NotFoundError(_COMPLETIONS_GONE)


def build_api(gateway: Gateway, *, echo_request_id: bool = True) -> Starlette:
    """Make the application.

    Args:
        gateway: The ingress's parts; started and closed with the application.
        echo_request_id: False where the server before this puts `x-request-id` into responses.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        del app
        await gateway.start()
        try:
            yield
        finally:
            await gateway.close()

    app = Starlette(
        routes=[
            Route("/v1/chat/completions", chat_completions, methods=["POST"]),
            Route("/v1/models", list_models, methods=["GET"]),
            Route("/v1/models/{model:path}", retrieve_model, methods=["GET"]),
            Route("/v1/completions", completions, methods=["GET", "POST"]),
            Route("/healthz", healthz, methods=["GET"]),
            Route("/readyz", readyz, methods=["GET"]),
        ],
        middleware=[
            Middleware(RequestId, echo=echo_request_id),
            Middleware(Failures, gateway=gateway),
            Middleware(Auth, gateway=gateway),
        ],
        exception_handlers={HTTPException: of_router},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.state.gateway = gateway
    return app
