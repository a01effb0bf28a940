"""Slots by a Ray Serve handle: the only place where the ingress calls a provider's replica."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, Protocol

from ray.exceptions import RayError
from ray.serve.exceptions import BackPressureError, RayServeException

from serve_app.errors import GatewayError, OverloadedError, UpstreamUnavailableError
from serve_app.runs import Slot
from serve_app.upstream.slots import OpenSlot

logger = logging.getLogger("ray.serve.edge")

#: A replica that died is replaced within two or three seconds.
_ASK_TIMES: Final = 20
_ASK_AGAIN_S: Final = 0.25


class _Stream(Protocol):
    """What is used of Serve's response generator."""

    async def __anext__(self) -> Any: ...

    def cancel(self) -> None: ...


class HandleSlot:
    """A slot whose stream is a handle's response generator."""

    def __init__(self, slot: Slot, stream: _Stream) -> None:
        self._slot = slot
        self._stream = stream
        self._closed = False

    @property
    def slot(self) -> Slot:
        """What was granted."""
        return self._slot

    async def wait_ended(self) -> None:
        """Return when the replica ended the stream, or died."""
        try:
            while True:
                await self._stream.__anext__()
        except StopAsyncIteration:
            pass
        except (RayError, RayServeException) as error:
            if not self._closed:
                logger.info(
                    "a slot of '%s' was lost: %s", self._slot.provider, type(error).__name__
                )

    def close(self) -> None:
        """Give the slot back by cancelling its stream."""
        if not self._closed:
            self._closed = True
            self._stream.cancel()


class HandleSource:
    """Asks a provider's deployment for slots.

    Args:
        provider: The provider's name, for messages.
        handle: Serve's handle to the provider's deployment.
    """

    def __init__(self, provider: str, handle: Any) -> None:
        self._provider = provider
        self._acquire = handle.options(stream=True).acquire

    async def open(self) -> OpenSlot:
        """Ask for a slot; Serve picks the replica and queues the call while all are busy.

        Raises:
            OverloadedError: Serve's queue for the deployment is full.
            UpstreamUnavailableError: Replicas die as fast as they are asked.
        """
        for _ in range(_ASK_TIMES):
            slot = await self._ask()
            if slot is not None:
                return slot
            await asyncio.sleep(_ASK_AGAIN_S)
        message = f"The provider '{self._provider}' keeps losing its replicas."
        raise UpstreamUnavailableError(message, retry_after_s=5, provider=self._provider)

    async def _ask(self) -> OpenSlot | None:
        """Ask once; `None` where the replica that was asked died of something."""
        stream: _Stream = self._acquire.remote()
        try:
            slot = await stream.__anext__()
        except asyncio.CancelledError:
            stream.cancel()
            raise
        except BackPressureError as error:
            message = f"The provider '{self._provider}' has too many requests. Try again later."
            raise OverloadedError(message, retry_after_s=5, provider=self._provider) from error
        except GatewayError as error:
            # What the replica raised arrives as a mixture with Ray's own error, whose text is a
            # traceback: rebuild the plain one.
            raise _plain(error) from error
        except (StopAsyncIteration, RayError, RayServeException) as error:
            logger.info("asking '%s' for a slot failed: %s", self._provider, type(error).__name__)
            return None
        return HandleSlot(slot, stream)


def _plain(error: GatewayError) -> GatewayError:
    """An error as it was raised, without what Ray mixed into it."""
    for cls in type(error).__mro__:
        if cls.__module__ == GatewayError.__module__ and issubclass(cls, GatewayError):
            return cls(
                error.message,
                param=error.param,
                code=error.code,
                status=error.status,
                retry_after_s=error.retry_after_s,
                provider=error.provider,
            )
    return error
