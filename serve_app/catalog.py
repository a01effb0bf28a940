"""A model's name → who serves it, under which name, and with which policy (clauses ROUTE)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from serve_app.config import ModelRoute, PoolModel, Settings
from serve_app.errors import Code, NotFoundError
from serve_app.runs import GenerationPolicy

#: The adapter that stands for the catalog `models[]`.
POOL = "pool"

#: Most that is shown of a model's name; a caller may have made it up.
_NAME_CHARS = 100


@dataclass(frozen=True, slots=True)
class Member:
    """One provider that can serve a route, and its own name of the model."""

    provider: str
    target: str


@dataclass(frozen=True, slots=True)
class Route:
    """What a model's name resolves to."""

    model: str
    members: tuple[Member, ...]
    policy: GenerationPolicy = field(default_factory=GenerationPolicy)
    #: Runs in all until a tool call is valid; `None`: as everywhere.
    tool_validation_attempts: int | None = None


class Catalog:
    """The routes of one configuration. Immutable; a new configuration makes a new one.

    Raises:
        LookupError: A route refers to a provider that is not there.
        NotFoundError: A route refers to a pool model that is not there.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pools = {entry.id: self._pool_route(entry) for entry in settings.models}
        self._routes = {
            entry.model: replace(
                self._adapter_route(entry.model, entry.adapter, _target(entry)),
                tool_validation_attempts=entry.tool_validation_attempts,
            )
            for entry in settings.openai.model_routes
        }
        self._fallback = settings.openai.adapter
        if self._fallback and self._fallback != POOL:
            settings.provider(self._fallback)  # fails now rather than at some request

    def models(self) -> list[str]:
        """Names that `/v1/models` lists, in the order of the configuration."""
        return list(dict.fromkeys((*self._routes, *self._pools)))

    def resolve(self, model: str) -> Route:
        """The route of a name: `model_routes[]`, then `models[]`, then the fallback adapter.

        Raises:
            NotFoundError: No route has the name and there is no fallback.
        """
        route = self._routes.get(model) or self._pools.get(model)
        if route is not None:
            return route
        fallback = self._settings.openai
        if not fallback.adapter:
            raise _no_such_model(model)
        return self._adapter_route(model, fallback.adapter, fallback.target or model)

    def _adapter_route(self, model: str, adapter: str, target: str) -> Route:
        """The route to an adapter: the pool, or one provider."""
        if adapter == POOL:
            pool = self._pools.get(target)
            if pool is None:
                raise _no_such_model(target)
            return Route(model=model, members=pool.members, policy=pool.policy)
        provider = self._settings.provider(adapter)
        return Route(model=model, members=(Member(provider.name, target),))

    def _pool_route(self, entry: PoolModel) -> Route:
        """The route of a pool catalog entry."""
        members = tuple(
            Member(self._settings.provider(member.provider).name, member.target or entry.id)
            for member in entry.providers
        )
        policy = GenerationPolicy(
            default_max_tokens=entry.default_max_tokens,
            min_max_tokens=entry.min_max_tokens,
            default_thinking_token_budget=entry.default_thinking_token_budget,
        )
        return Route(model=entry.id, members=members, policy=policy)


def _no_such_model(name: str) -> NotFoundError:
    """The error for a name that nothing serves."""
    shown = name if len(name) <= _NAME_CHARS else name[:_NAME_CHARS] + "…"
    message = f"The model '{shown}' does not exist. GET /v1/models lists what is served."
    return NotFoundError(message, code=Code.MODEL_NOT_FOUND)


def _target(entry: ModelRoute) -> str:
    """The upstream's name of a routed model."""
    return entry.target or entry.model
