"""`edge.yaml` and the environment, as frozen settings.

Rules of this file:
1. It is the only module that reads the environment.
2. An unknown key is a fault, and the nearest known key is named.
3. One `ConfigError` lists every fault, each with its path.
4. Secrets are `SecretStr`: no repr, log line or error shows them.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Self, cast

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    HttpUrl,
    SecretStr,
    StringConstraints,
    ValidationError,
    model_validator,
)

from serve_app.errors import ConfigError

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
ModelId = Annotated[str, StringConstraints(min_length=1, max_length=256)]


class Section(BaseModel):
    """Base of every section: frozen, and no key that is not known."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Limits(Section):
    """Bounds on what a caller may send."""

    body_mib: int = Field(32, ge=1, le=1024, description="Largest request body, in MiB.")
    json_depth: int = Field(100, ge=8, le=150, description="Deepest nesting of a JSON body.")


class Timeouts(Section):
    """Time limits of one upstream call, in seconds; 0 means no limit."""

    connect_s: float = Field(5, gt=0, description="To open a connection to an upstream.")
    slot_s: float = Field(30, gt=0, description="To wait for a free slot on a provider.")
    first_token_s: float = Field(120, ge=0, description="From sending to the first event.")
    idle_s: float = Field(60, ge=0, description="Longest silence of an upstream afterwards.")
    total_s: float = Field(0, ge=0, description="Longest whole answer.")


class ModelRoute(Section):
    """One public model name and what serves it."""

    model: ModelId = Field(description="The name callers use.")
    adapter: Name = Field(description="A provider's name, a provider type, or `pool`.")
    target: str = Field("", description="The upstream's name of the model; empty: the same.")


class OpenAI(Section):
    """The OpenAI-compatible surface."""

    bearer_token: SecretStr = Field(SecretStr(""), description="Empty: no authentication.")
    adapter: str = Field("", description="Serves a model that no route names; empty: 404.")
    target: str = Field("", description="The fallback's model; empty: the request's own.")
    limits: Limits = Limits()
    timeouts: Timeouts = Timeouts()
    model_routes: list[ModelRoute] = []


class PoolMember(Section):
    """One provider that can serve a pool's model."""

    provider: Name
    target: str = Field("", description="The upstream's name of the model; empty: the same.")


class PoolModel(Section):
    """One entry of the pool catalog `models[]`."""

    id: ModelId
    providers: list[PoolMember] = Field(min_length=1)
    default_max_tokens: int | None = Field(None, ge=1, description="When a caller gave no limit.")
    min_max_tokens: int | None = Field(None, ge=1, description="A smaller limit is raised to it.")
    default_thinking_token_budget: int | None = Field(None, ge=0)


class Engine(Section):
    """A server that a provider's replica starts on its own host."""

    model: str = Field("", description="Path of a GGUF file; empty: the model that is built in.")
    context: int = Field(4096, ge=256, description="Context of one request, in tokens.")
    threads: int = Field(0, ge=0, description="0: the host's cores less one, at least one.")
    chat_template: str = Field("", description="Path of a Jinja chat template of your own.")
    start_s: float = Field(120, gt=0, description="Longest start, in seconds.")
    stop_grace_s: float = Field(10, gt=0, description="Between TERM and KILL, in seconds.")


class Autoscaling(Section):
    """How many replicas of a provider Ray keeps."""

    min: int = Field(1, ge=0)
    max: int = Field(1, ge=1)
    target: float | None = Field(None, gt=0, description="Busy slots a replica; default: 80 %.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min ({self.min}) is above max ({self.max})")
        return self


class Provider(Section):
    """One place that can run a model."""

    name: Name
    type: str = Field(description="A kind of upstream: one file in `deployments/providers/`.")
    url: HttpUrl | None = Field(None, description="Where a running server's API is (…/v1).")
    api_key: SecretStr = Field(SecretStr(""), description="Sent to the upstream as bearer token.")
    engine: Engine | None = Field(None, description="A server for the replica to start.")
    slots: int = Field(64, ge=1, le=4096, description="Requests at once, for each replica.")
    queue: int = Field(256, ge=0, description="Requests that may wait for a slot.")
    autoscaling: Autoscaling = Autoscaling()


class Settings(Section):
    """All of `edge.yaml`."""

    openai: OpenAI = OpenAI()
    models: list[PoolModel] = []
    providers: list[Provider] = Field(min_length=1)
