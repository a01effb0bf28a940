"""The bearer token (clauses AUTH)."""

from __future__ import annotations

import hmac
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from serve_app.errors import UnauthorizedError
from serve_app.ingress.gateway import Gateway

#: Paths that stay open whatever the configuration says.
OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})


class Auth:
    """Lets a request through if it carries the token, or if there is none to carry."""

    def __init__(self, app: ASGIApp, *, gateway: Gateway) -> None:
        self._app = app
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            token = self._gateway.current.settings.openai.bearer_token.get_secret_value()
            if token and not is_authorized(scope["headers"], token):
                raise wrong_token()
        await self._app(scope, receive, send)


def wrong_token() -> UnauthorizedError:
    """One text for every way to be wrong: it tells nothing about the token."""
    return UnauthorizedError("Missing or wrong API key. Send 'Authorization: Bearer <token>'.")


def is_authorized(headers: list[tuple[bytes, bytes]], token: str) -> bool:
    """True where exactly one `Authorization` header carries the token as a bearer.

    Compared in constant time, as bytes, so that no value of either side can raise.
    """
    values = [value for name, value in headers if name == b"authorization"]
    if len(values) != 1:
        return False
    scheme, _, given = values[0].partition(b" ")
    right = hmac.compare_digest(given.strip(b" \t"), token.encode())
    return right and scheme.lower() == b"bearer"
