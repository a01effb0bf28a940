"""The ASGI application: one ordered list of what a request passes, one list of endpoints.

It knows nothing of Ray Serve: any ASGI server can run it. Starlette's router is used without its
application class, whose own layers for failures would stand in every request's way for nothing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.datastructures import State
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from serve_app.errors import NotFoundError
from serve_app.ingress.admission import Admission
from serve_app.ingress.auth import Auth
from serve_app.ingress.chat import chat_completions
from serve_app.ingress.failures import Failures
from serve_app.ingress.gateway import Gateway
from serve_app.ingress.health import healthz, readyz
from serve_app.ingress.models import list_models, retrieve_model
from serve_app.ingress.request_id import RequestId
from serve_app.ingress.sockets import refuse_socket

_ENDPOINTS = "Use /v1/chat/completions; GET /v1/models lists the models."
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


async def no_such_path(scope: Scope, receive: Receive, send: Send) -> None:
    """What the router does with a path that is in no list.

    Raises:
        NotFoundError: Always.
    """
    del scope, receive, send
    raise NotFoundError(f"There is no such path. {_ENDPOINTS}")


class Api:
    """The application.

    Args:
        gateway: The ingress's parts; started and closed with the application.
        echo_request_id: False where the server before this puts `x-request-id` into responses.

    Attributes:
        state: Where endpoints find the gateway (`request.app.state.gateway`).
        router: Starlette's; Ray Serve asks it for a request's route.
    """

    def __init__(self, gateway: Gateway, *, echo_request_id: bool) -> None:
        self.state = State({"gateway": gateway})
        self.router = Router(
            routes=[
                Route("/v1/chat/completions", chat_completions, methods=["POST"]),
                Route("/v1/models", list_models, methods=["GET"]),
                Route("/v1/models/{model:path}", retrieve_model, methods=["GET"]),
                Route("/v1/completions", completions, methods=["GET", "POST"]),
                Route("/healthz", healthz, methods=["GET"]),
                Route("/readyz", readyz, methods=["GET"]),
            ],
            redirect_slashes=False,
            default=no_such_path,
            lifespan=self._lifespan,
        )
        # From the inside out: what is last here sees a request first.
        app: ASGIApp = Admission(self.router, gateway=gateway)
        app = Auth(app, gateway=gateway)
        app = Failures(app, gateway=gateway)
        self._app: ASGIApp = RequestId(app, echo=echo_request_id)

    @property
    def routes(self) -> list[BaseRoute]:
        """The endpoints."""
        return self.router.routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, or the application's start and end."""
        scope["app"] = self
        if scope["type"] == "websocket":
            await refuse_socket(scope, receive, send, gateway=self.state.gateway)
        else:
            await self._app(scope, receive, send)

    @asynccontextmanager
    async def _lifespan(self, app: object) -> AsyncGenerator[None]:
        del app
        gateway: Gateway = self.state.gateway
        await gateway.start()
        try:
            yield
        finally:
            await gateway.close()


def build_api(gateway: Gateway, *, echo_request_id: bool = True) -> Api:
    """Make the application; see `Api`."""
    return Api(gateway, echo_request_id=echo_request_id)
