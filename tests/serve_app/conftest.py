"""A running gateway over a fake upstream, without Ray."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Generator

import pytest

from tests.fakes.upstream import Upstream
from tests.serve_app.ingress.edge import Edge, running


@pytest.fixture
def upstream() -> Generator[Upstream]:
    """A fake inference server."""
    with Upstream() as server:
        yield server


@pytest.fixture
async def edge(upstream: Upstream) -> AsyncGenerator[Edge]:
    """A gateway without a token that sends every model to the fake upstream."""
    async with running(upstream) as gateway:
        yield gateway


class _Keeper(logging.Handler):
    """Keeps each record once, by whichever logger it comes."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record not in self.records:
            self.records.append(record)


@pytest.fixture
def records() -> Generator[list[logging.LogRecord]]:
    """What is logged during the test, by the gateway and by all else.

    The gateway's logger is heard by itself: Ray, if some test before has started it, keeps what
    is logged below its own loggers from the root.
    """
    keeper = _Keeper()
    heard = [logging.getLogger(), logging.getLogger("ray.serve.edge")]
    levels = [logger.level for logger in heard]
    for logger in heard:
        logger.addHandler(keeper)
        logger.setLevel(logging.DEBUG)
    yield keeper.records
    for logger, level in zip(heard, levels, strict=True):
        logger.removeHandler(keeper)
        logger.setLevel(level)
