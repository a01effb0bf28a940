"""WebSockets, which are not offered: some clients try one first and want an HTTP answer."""

from __future__ import annotations

from starlette.types import Message, Receive, Scope, Send

from serve_app.errors import GatewayError, NotFoundError
from serve_app.ingress.auth import is_authorized, wrong_token
from serve_app.ingress.failures import respond
from serve_app.ingress.gateway import Gateway
from serve_app.ingress.request_id import HEADER, request_id_in


async def refuse_socket(scope: Scope, receive: Receive, send: Send, *, gateway: Gateway) -> None:
    """Answer the request to open a WebSocket: 401 without the token, else 404."""
    token = gateway.current.settings.openai.bearer_token.get_secret_value()
    error: GatewayError = NotFoundError("WebSockets are not offered. Send a POST request.")
    if token and not is_authorized(scope["headers"], token):
        error = wrong_token()
    await receive()
    request_id = request_id_in(scope)
    gateway.access_log.add(
        {"request_id": request_id, "path": scope["path"][:200], "status": error.status}
    )
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008})
        return

    async def send_as_socket(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], (HEADER.encode(), request_id.encode())]
        await send({**message, "type": f"websocket.{message['type']}"})

    await respond(error, send_as_socket)
