"""`edge.yaml` and the environment, as frozen settings.

Rules of this file:
1. It is the only module that reads the environment.
2. An unknown key is a fault, and the nearest known key is named.
3. One `ConfigError` lists every fault, each with its path.
4. Secrets are `SecretStr`: no repr, log line or error shows them.
5. `null` means the same as leaving the key out.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Self, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    HttpUrl,
    PrivateAttr,
    SecretStr,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from serve_app import config_faults, config_text
from serve_app.config_faults import ENGINE_BY_DEFAULT
from serve_app.errors import ConfigError

_NUMBERS = ("integer", "number", "boolean")


def _header_safe(token: SecretStr) -> SecretStr:
    """Refuse a token that no HTTP header can carry, often a line end that came with a file."""
    if any(not "!" <= char <= "~" for char in token.get_secret_value()):
        raise ValueError("holds white space or a character that no HTTP header can carry")
    return token


def _bare_url(url: HttpUrl) -> HttpUrl:
    """Refuse the parts of a URL that have a key of their own or no meaning here."""
    if url.username or url.password:
        raise ValueError("must not hold a user name or password; use 'api_key'")
    if url.query or url.fragment:
        raise ValueError("must end with its path: no '?' and no '#'")
    return url


Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
ModelId = Annotated[str, StringConstraints(min_length=1, max_length=256)]
Token = Annotated[SecretStr, AfterValidator(_header_safe)]
ApiUrl = Annotated[HttpUrl, AfterValidator(_bare_url)]
Sentinel = Annotated[str, StringConstraints(min_length=1, max_length=64)]
Attempts = Annotated[int, Field(ge=1, le=10)]


class Section(BaseModel):
    """Base of every section: frozen, and no key that is not known."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        given = cast("Mapping[object, object]", data)
        # An unknown key stays, whatever its value: it has to be reported.
        return {k: v for k, v in given.items() if v is not None or k not in cls.model_fields}


class Limits(Section):
    """Bounds on what a caller may send."""

    body_mib: int = Field(default=32, ge=1, le=1024, description="Largest request body, in MiB.")
    json_depth: int = Field(
        default=100, ge=8, le=150, description="Deepest nesting of a JSON body."
    )


class Timeouts(Section):
    """Time limits of one upstream call, in seconds; 0 means no limit."""

    connect_s: float = Field(default=5, gt=0, description="To open a connection to an upstream.")
    slot_s: float = Field(default=30, gt=0, description="To wait for a free slot on a provider.")
    first_token_s: float = Field(default=120, ge=0, description="From sending to the first event.")
    idle_s: float = Field(
        default=60, ge=0, description="Longest silence of an upstream afterwards."
    )
    total_s: float = Field(default=0, ge=0, description="Longest whole answer.")


class ModelRoute(Section):
    """One public model name and what serves it."""

    model: ModelId = Field(description="The name callers use.")
    adapter: Name = Field(description="A provider's name, a provider type, or `pool`.")
    target: str = Field(
        default="", description="The upstream's name of the model; empty: the same."
    )
    tool_validation_attempts: Attempts | None = Field(
        default=None, description="Instead of `openai.tool_validation_attempts`."
    )


class OpenAI(Section):
    """The OpenAI-compatible surface."""

    bearer_token: Token = Field(default=SecretStr(""), description="Empty: no authentication.")
    adapter: str = Field(default="", description="Serves a model that no route names; empty: 404.")
    target: str = Field(default="", description="The fallback's model; empty: the request's own.")
    strict_output: bool = Field(
        default=False, description="No thinking unless a caller says `think: true`."
    )
    tool_validation_attempts: Attempts = Field(
        default=3, description="Runs in all, until a tool call in text is valid."
    )
    sentinels: list[Sentinel] = Field(
        default=[], description="Control tokens to keep out of answers, beside the known ones."
    )
    limits: Limits = Limits()
    timeouts: Timeouts = Timeouts()
    model_routes: list[ModelRoute] = Field(default=[], description="Looked up first, in any order.")


class PoolMember(Section):
    """One provider that can serve a pool's model."""

    provider: Name = Field(description="A provider's name, or a type that one provider has.")
    target: str = Field(
        default="", description="The upstream's name of the model; empty: the same."
    )


class PoolModel(Section):
    """One entry of the pool catalog `models[]`."""

    id: ModelId = Field(description="The name callers use.")
    providers: list[PoolMember] = Field(min_length=1, description="Who can serve it.")
    default_max_tokens: int | None = Field(
        default=None, ge=1, description="When a caller gave no limit."
    )
    min_max_tokens: int | None = Field(
        default=None, ge=1, description="A smaller limit is raised to it."
    )
    default_thinking_token_budget: int | None = Field(
        default=None, ge=0, description="When a caller gave none and did not forbid reasoning."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        default, least = self.default_max_tokens, self.min_max_tokens
        if default is not None and least is not None and default < least:
            raise PydanticCustomError(
                "order",
                "is {default}, below min_max_tokens ({least})",
                {"key": "default_max_tokens", "default": default, "least": least},
            )
        return self


class Engine(Section):
    """A server that a provider's replica starts on its own host."""

    model: str = Field(
        default="", description="Path of a GGUF file; empty: the model that is built in."
    )
    context: int = Field(default=4096, ge=256, description="Context of one request, in tokens.")
    threads: int = Field(default=0, ge=0, description="0: the host's cores less one, at least one.")
    chat_template: str = Field(default="", description="Path of a Jinja chat template of your own.")
    start_s: float = Field(default=120, gt=0, description="Longest start, in seconds.")
    stop_grace_s: float = Field(default=10, gt=0, description="Between TERM and KILL, in seconds.")


class Autoscaling(Section):
    """How many replicas of a provider Ray keeps."""

    min: int = Field(default=1, ge=0, description="0: none while nobody asks for it.")
    max: int = Field(default=1, ge=1, description="Never more than these.")
    target: float | None = Field(
        default=None, gt=0, description="Busy slots a replica; default: 80 %."
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise PydanticCustomError(
                "order",
                "is {min}, above max ({max})",
                {"key": "min", "min": self.min, "max": self.max},
            )
        return self


class Provider(Section):
    """One place that can run a model: a server at a URL, or an engine of our own."""

    name: Name = Field(description="Unique; what routes and pools refer to.")
    type: str = Field(description="A kind of upstream: one file in `deployments/providers/`.")
    url: ApiUrl | None = Field(default=None, description="Where a running server's API is (…/v1).")
    api_key: Token = Field(
        default=SecretStr(""), description="Sent to the upstream as bearer token."
    )
    engine: Engine | None = Field(default=None, description="A server for the replica to start.")
    slots: int = Field(
        default=64, ge=1, le=4096, description="Requests at once, a replica; llama_cpp's engine: 4."
    )
    queue: int = Field(default=256, ge=0, description="Requests that may wait for a slot.")
    takes_think_fields: bool = Field(
        default=True,
        description="False: no think field that the caller did not send (types without a table).",
    )
    autoscaling: Autoscaling = Autoscaling()

    @model_validator(mode="before")
    @classmethod
    def _built_in_engine(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        given = dict(cast("Mapping[str, Any]", data))
        if given.get("type") in ENGINE_BY_DEFAULT and given.get("url") is None:
            if given.get("engine") is None:
                given["engine"] = {}
            if given.get("slots") is None:
                # Each slot costs a whole context of memory.
                given["slots"] = 4
        return given


class Settings(Section):
    """All of `edge.yaml`."""

    openai: OpenAI = OpenAI()
    models: list[PoolModel] = Field(default=[], description="The pool catalog, after model_routes.")
    providers: list[Provider] = Field(min_length=1, description="The places that run models.")

    _variables: frozenset[str] = PrivateAttr(default=frozenset())

    def model_post_init(self, context: object, /) -> None:
        """Keep which variables the text referred to."""
        if isinstance(context, config_text.Source):
            self._variables = context.variables

    @property
    def variables(self) -> frozenset[str]:
        """Names of the environment variables the file refers to; none is an engine's business."""
        return self._variables

    def provider(self, name: str) -> Provider:
        """Give the provider of this name, or else the only one of this type.

        Raises:
            LookupError: There is none, or there are several of that type.
        """
        named = [p for p in self.providers if p.name == name]
        found = named or [p for p in self.providers if p.type == name]
        if len(found) != 1:
            raise LookupError(f"{len(found)} providers answer to {name!r}")
        return found[0]

    def warnings(self, always_thinking: Collection[str]) -> list[str]:
        """Say what is allowed and will surprise: one line each, its path first.

        Args:
            always_thinking: Provider types that cannot be told to answer without thinking.
        """
        if not self.openai.strict_output:
            return []
        return [
            f"{path}: strict output refuses every request for {what} that does not say "
            f"'think: true', for no provider of it ({', '.join(names)}) can switch thinking off"
            for path, what, names in self._served()
            if all(self.provider(name).type in always_thinking for name in names)
        ]

    def _served(self) -> Iterator[tuple[str, str, list[str]]]:
        """Give each path that names providers for a model, with the model and the providers."""
        pools = {model.id: [member.provider for member in model.providers] for model in self.models}
        for index, route in enumerate(self.openai.model_routes):
            names = [route.adapter]
            if route.adapter == "pool":
                names = pools[route.target or route.model]
            yield f"openai.model_routes[{index}]", f"'{route.model}'", names
        for index, (name, names) in enumerate(pools.items()):
            yield f"models[{index}]", f"'{name}'", names
        fallback = self.openai.adapter
        if fallback and fallback != "pool":
            yield "openai.adapter", "any other model", [fallback]


def read(
    path: Path,
    *,
    environ: Mapping[str, str] | None = None,
    types: Collection[str] | None = None,
) -> Settings:
    """Read the settings from a file.

    Raises:
        ConfigError: The file cannot be read, or for what `load` refuses.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}"]) from None
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: is not UTF-8 text (byte {error.start})"]) from None
    return load(text, environ=environ, types=types)


def load(
    text: str,
    *,
    environ: Mapping[str, str] | None = None,
    types: Collection[str] | None = None,
) -> Settings:
    """Make settings of the text of an `edge.yaml`.

    Args:
        text: YAML; `${NAME}` and `${NAME:-default}` in values stand for the environment.
        environ: Where those names are looked up; the process's environment by default.
        types: The known provider types; by default any is taken.

    Raises:
        ConfigError: With every fault of the text.
    """
    source = config_text.parse(text, os.environ if environ is None else environ)
    faults = list(source.faults)
    settings: Settings | None = None
    try:
        settings = Settings.model_validate(source.data, context=source)
    except ValidationError as error:
        faults += source.news(config_faults.of_validation(error, Settings))
    faults += source.news(config_faults.of_references(source.data, types))
    if faults or settings is None:
        raise ConfigError(source.redact(faults))
    return settings


def engine_environment(withhold: Collection[str]) -> dict[str, str]:
    """Give the environment for a program that the gateway starts, without these variables."""
    return {name: value for name, value in os.environ.items() if name not in withhold}


def engine_host() -> str:
    """Address on which this host's engines listen; empty where nobody has said one.

    `iop-edge run` says loopback, since everything is on one machine there.
    """
    return os.environ.get("IOP_EDGE_ENGINE_HOST", "")


def json_schema(types: Collection[str]) -> dict[str, Any]:
    """Describe `edge.yaml` as JSON Schema (draft 2020-12), for editors and other programs."""
    schema = Settings.model_json_schema()
    definitions: dict[str, Any] = schema.pop("$defs")
    for section in [schema, *definitions.values()]:
        section["properties"] = {
            key: _open_to_variables(field) for key, field in section["properties"].items()
        }
    definitions["Provider"]["properties"]["type"]["enum"] = sorted(types)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "IOP Edge configuration (edge.yaml)",
        "description": schema["description"],
        "type": "object",
        "properties": schema["properties"],
        "required": schema["required"],
        "additionalProperties": False,
        "$defs": definitions,
    }


def _open_to_variables(field: dict[str, Any]) -> dict[str, Any]:
    """Allow a `${NAME}` where the value's own schema would refuse that text."""
    kept = {key: field[key] for key in ("description", "default") if key in field}
    if isinstance(kept.get("default"), dict | list) or kept.get("default", 0) is None:
        del kept["default"]
    shape = {key: value for key, value in field.items() if key not in {*kept, "title", "default"}}
    shapes = shape.get("anyOf", [shape])
    shapes = [one for one in shapes if one != {"type": "null"}]
    if any(one.get("type") in _NUMBERS or {"format", "pattern"} & one.keys() for one in shapes):
        shapes = [*shapes, {"type": "string", "pattern": r"\$\{"}]
    return {**kept, **(shapes[0] if len(shapes) == 1 else {"anyOf": shapes})}
