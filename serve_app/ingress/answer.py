"""One answer to a caller: a turn and the steps over its events, repeated where that is allowed.

Free of the surface: the chat endpoint encodes what comes from here, and others will too.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from serve_app.catalog import Route
from serve_app.errors import GatewayError, ToolValidationError
from serve_app.ingress.gateway import Gateway
from serve_app.ingress.turn import Turn
from serve_app.runs import ProviderFacts, RunEvent, RunRequest
from serve_app.streams.pipeline import Pipeline
from serve_app.streams.reasoning_only import ReasoningOnly
from serve_app.streams.sentinels import Sentinels
from serve_app.streams.step import Step
from serve_app.streams.think_tags import ThinkTags
from serve_app.streams.tool_text import ToolText
from serve_app.tools.sentinel_names import KNOWN_SENTINELS
from serve_app.tools.toolset import ToolSet


@dataclass(frozen=True, slots=True)
class Plan:
    """What an answer is made of, decided before anything runs."""

    #: The request after the policies that are the same for every provider.
    run: RunRequest
    route: Route
    #: The caller's tools; `None` where there are none, and text stays what the model wrote.
    toolset: ToolSet | None
    #: Runs in all, for an answer that nobody has seen a part of yet.
    attempts: int
    #: Sentinels beside the known ones.
    sentinels: tuple[str, ...]
    #: Begins the ids of calls that the model wrote as text.
    call_prefix: str


class Answer:
    """One answer, live or whole.

    Args:
        gateway: The ingress's parts.
        plan: What to run.

    Raises:
        UnsupportedThinkError: Nobody who may serve it can do what it says about thinking.
    """

    def __init__(self, gateway: Gateway, plan: Plan) -> None:
        self._gateway = gateway
        self._plan = plan
        self._turn = Turn(gateway, plan.run, plan.route)

    @property
    def provider(self) -> str:
        """Who answers, or answered last."""
        return self._turn.member.provider

    @property
    def metadata(self) -> dict[str, str]:
        """What is to be told about the run besides its answer."""
        return self._turn.metadata

    async def whole(self) -> list[RunEvent]:
        """All events of a good answer: a broken tool call is run again, a few times.

        Raises:
            ToolValidationError: Every run's tool call was broken.
            GatewayError: A run failed for another reason.
        """
        last = self._plan.attempts
        for attempt in range(1, last + 1):
            if attempt > 1:
                self._turn = Turn(self._gateway, self._plan.run, self._plan.route)
            collected: list[RunEvent] = []
            try:
                async with self.live() as batches:
                    async for events in batches:
                        collected += events
            except ToolValidationError as error:
                if attempt == last:
                    error.message += f" (run {last} of {last})" if last > 1 else ""
                    raise
            else:
                return collected
        raise AssertionError("unreachable: the last attempt returns or raises")

    @asynccontextmanager
    async def live(self) -> AsyncGenerator[AsyncIterator[list[RunEvent]]]:
        """The events as they come. What opening raises is still an HTTP status.

        Raises:
            GatewayError: The run failed before its first event.
        """
        async with self._turn as turn:
            yield self._through(turn)

    async def _through(self, turn: Turn) -> AsyncGenerator[list[RunEvent]]:
        """A turn's events, through the steps."""
        pipeline = Pipeline(self._steps(turn.facts))
        try:
            async for events in turn:
                if passed := pipeline.feed(events):
                    yield passed
            if passed := pipeline.finish():
                yield passed
            pipeline.check()
        except GatewayError as error:
            error.provider = error.provider or turn.member.provider
            raise

    def _steps(self, facts: ProviderFacts) -> list[Step[RunEvent, RunEvent]]:
        """New steps for one turn, in the order in which text has to pass them."""
        plan = self._plan
        steps: list[Step[RunEvent, RunEvent]] = []
        if facts.leaves_think_tags:
            steps.append(ThinkTags())
        if plan.toolset is not None:
            sentinels = (*KNOWN_SENTINELS, *plan.sentinels)
            steps.append(
                ToolText(
                    plan.toolset,
                    choice=plan.run.tool_choice,
                    call_prefix=plan.call_prefix,
                    sentinels=sentinels,
                )
            )
        steps.append(Sentinels(plan.sentinels))
        steps.append(ReasoningOnly(include_reasoning=plan.run.include_reasoning))
        return steps
