"""Several steps as one.

A step that fails in the middle of a batch has let good events through before. Those go the rest of
the way first, and the failure is told after them: how a stream was cut must not matter to what a
caller sees before an error.
"""

from __future__ import annotations

from collections.abc import Sequence

from serve_app.errors import GatewayError
from serve_app.runs import RunEvent
from serve_app.streams.step import Step


class Pipeline:
    """Steps over a turn's events, in their order.

    Args:
        steps: New ones, for this turn alone.
    """

    def __init__(self, steps: Sequence[Step[RunEvent, RunEvent]]) -> None:
        self._steps = steps
        self._failure: GatewayError | None = None

    def feed(self, events: list[RunEvent]) -> list[RunEvent]:
        """Take the events that came together; give what is certain by now.

        Raises:
            GatewayError: A step has failed, now or with what came before.
        """
        self.check()
        for position, step in enumerate(self._steps):
            passed: list[RunEvent] = []
            try:
                for event in events:
                    passed += step.feed(event)
            except GatewayError as error:
                return self._fail(error, passed, position)
            events = passed
        return events

    def finish(self) -> list[RunEvent]:
        """Say that the events are over; each step's rest goes through the later ones.

        Raises:
            GatewayError: As `feed`.
        """
        self.check()
        events: list[RunEvent] = []
        for position, step in enumerate(self._steps):
            passed: list[RunEvent] = []
            try:
                for event in events:
                    passed += step.feed(event)
                passed += step.finish()
            except GatewayError as error:
                return self._fail(error, passed, position)
            events = passed
        return events

    def check(self) -> None:
        """Tell a failure whose good events have been given.

        Raises:
            GatewayError: There is one.
        """
        if self._failure is not None:
            raise self._failure

    def _fail(self, error: GatewayError, events: list[RunEvent], position: int) -> list[RunEvent]:
        """Keep a failure for later if there is something to show before it."""
        later = Pipeline(self._steps[position + 1 :])
        shown = later.feed(events) + later.finish()
        self._failure = error
        if not shown:
            raise error
        return shown
