"""Settings: everything wrong with an `edge.yaml` is told at once, and no secret with it."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from serve_app import config
from serve_app.errors import ConfigError

TYPES = ("bare", "llama_cpp", "ollama", "openai_compat")
LOCAL = "providers: [{name: local, type: llama_cpp}]\n"
TWO = """
providers:
  - {name: local, type: llama_cpp}
  - {name: a, type: openai_compat, url: "http://a/v1"}
  - {name: b, type: openai_compat, url: "http://b/v1"}
"""


def load(text: str, **environ: str) -> config.Settings:
    return config.load(text, environ=environ, types=TYPES)


def faults(text: str, **environ: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(text, **environ)
    return caught.value.faults


# What is refused

OPENAI = LOCAL + "openai: "
COMPAT = "{name: a, type: openai_compat, url: 'http://h/v1'"
REFUSED = [
    # the text
    ("empty", "", "line 1: the file is empty"),
    ("only-comment", "# nothing\n", "line 1: the file is empty"),
    ("list-at-top", "- a", "line 1: must be a mapping"),
    ("text-at-top", "hello", "line 1: must be a mapping"),
    ("malformed", "a: 1\nb: [1, 2\nc: 3", "line 3, column 2: is not valid YAML"),
    ("tab", "a:\n\tb: 1", "line 2, column 1: is not valid YAML"),
    ("control-character", "a: 1\nb: \x01", "line 2: is not valid YAML"),
    ("two-documents", "a: 1\n---\nb: 1", "line 2, column 1: is not valid YAML"),
    ("within-itself", "providers: &x [*x]", "line 1: the YAML is nested too deeply"),
    ("python-tag", OPENAI + "!!python/name:os.system", "openai: has a YAML tag"),
    ("no-number", OPENAI + "{limits: {body_mib: !!int x}}", "openai.limits.body_mib: cannot be"),
    ("key-twice", "providers: 1\n" + LOCAL, "providers: stands twice (line 1 and line 2)"),
    ("deep-key-twice", OPENAI + "{target: a, target: b}", "openai.target: stands twice (line 2"),
    ("odd-key", OPENAI + "{[a, b]: 1}", "openai: a key must be plain text"),
    # the environment
    ("unset", OPENAI + "{target: '${NO}'}", "openai.target: the environment variable NO is not"),
    ("set-empty", OPENAI + "{target: '${EMPTY}'}", "openai.target: the environment variable EMPTY"),
    ("bad-variable", OPENAI + "{target: '${a b}'}", "openai.target: has a '${' that is no"),
    # keys and values
    ("top-key", LOCAL + "opanai: 1", "opanai: unknown key; did you mean 'openai'?"),
    (
        "deep-key",
        "providers: [{name: a, type: llama_cpp, slot: 1}]",
        "providers[0].slot: unknown key; did you mean 'slots'?",
    ),
    (
        "optional-section-key",
        "providers: [{name: a, type: llama_cpp, engine: {contxt: 1}}]",
        "providers[0].engine.contxt: unknown key; did you mean 'context'?",
    ),
    ("strange-key", LOCAL + "zzzzzz: 1", "zzzzzz: unknown key"),
    ("null-key", LOCAL + "opanai:", "opanai: unknown key"),
    ("no-providers", "openai: {}", "providers: is required"),
    ("none", "providers: []", "providers: must have at least one entry"),
    ("no-mapping", OPENAI + "3", "openai: must be a mapping"),
    ("no-list", OPENAI + "{model_routes: 3}", "openai.model_routes: must be a list"),
    ("no-text", OPENAI + "{target: 3}", "openai.target: must be text"),
    ("no-integer", OPENAI + "{limits: {body_mib: x}}", "openai.limits.body_mib: must be a whole"),
    ("half", OPENAI + "{limits: {body_mib: 1.5}}", "openai.limits.body_mib: must be a whole"),
    ("too-big", OPENAI + "{limits: {body_mib: 9999}}", "openai.limits.body_mib: must be less"),
    ("infinite", OPENAI + "{timeouts: {idle_s: .inf}}", "openai.timeouts.idle_s: must be a fin"),
    ("bad-name", "providers: [{name: 'a b', type: llama_cpp}]", "providers[0].name: must be 1 to"),
    ("token-space", OPENAI + "{bearer_token: 'a b'}", "openai.bearer_token: holds white space"),
    ("token-line", OPENAI + '{bearer_token: "ab\\n"}', "openai.bearer_token: holds white space"),
    (
        "scaling",
        "providers: [{name: a, type: llama_cpp, autoscaling: {min: 3, max: 2}}]",
        "providers[0].autoscaling.min: is 3, above max (2)",
    ),
    (
        "scaling-target",
        f"providers: [{COMPAT}, slots: 4, autoscaling: {{target: 5}}}}]",
        "providers[0].autoscaling.target: is above 'slots' (4)",
    ),
    (
        "token-limits",
        LOCAL + "models: [{id: m, providers: [{provider: local}], default_max_tokens: 1,"
        " min_max_tokens: 2}]",
        "models[0].default_max_tokens: is 1, below min_max_tokens (2)",
    ),
    ("no-url", f"providers: [{COMPAT[:-13]}ftp://h'}}]", "providers[0].url: "),
    # places
    (
        "unknown-type",
        "providers: [{name: a, type: llama_cp}]",
        "providers[0].type: 'llama_cp' is none of bare, llama_cpp, ollama, openai_compat; did you"
        " mean 'llama_cpp'?",
    ),
    (
        "neither",
        "providers: [{name: a, type: bare}]",
        "providers[0]: must have exactly one of 'url' and 'engine'",
    ),
    (
        "both",
        "providers: [{name: a, type: llama_cpp, url: 'http://h', engine: {}}]",
        "providers[0]: has 'url' and 'engine'",
    ),
    (
        "compat-without-url",
        "providers: [{name: a, type: openai_compat}]",
        "providers[0].url: is required",
    ),
    (
        "ollama-without-url",
        "providers: [{name: a, type: ollama}]",
        "providers[0].url: is required for a provider of type ollama",
    ),
    (
        "compat-with-engine",
        f"providers: [{COMPAT}, engine: {{}}}}]",
        "providers[0].engine: a provider of type openai_compat has no engine",
    ),
    (
        "url-with-password",
        "providers: [{name: a, type: openai_compat, url: 'http://me:pw@h/v1'}]",
        "providers[0].url: must not hold a user name or password",
    ),
    (
        "url-with-query",
        "providers: [{name: a, type: openai_compat, url: 'http://h/v1?k=1'}]",
        "providers[0].url: must end with its path",
    ),
    # tools and sentinels
    ("no-attempt", OPENAI + "{tool_validation_attempts: 0}", "openai.tool_validation_attempts: "),
    (
        "many-attempts",
        OPENAI + "{tool_validation_attempts: 11}",
        "openai.tool_validation_attempts: must be less than or equal to 10",
    ),
    (
        "no-attempt-on-a-route",
        OPENAI + "{model_routes: [{model: m, adapter: local, tool_validation_attempts: 0}]}",
        "openai.model_routes[0].tool_validation_attempts: must be greater",
    ),
    ("empty-sentinel", OPENAI + "{sentinels: [a, '']}", "openai.sentinels[1]: "),
    ("long-sentinel", OPENAI + f"{{sentinels: [{'x' * 65}]}}", "openai.sentinels[0]: "),
    ("lone-sentinel", OPENAI + "{sentinels: a}", "openai.sentinels: must be a list"),
    ("strict-word", OPENAI + "{strict_output: maybe}", "openai.strict_output: must be a valid"),
    # names and references
    (
        "provider-twice",
        f"providers: [{COMPAT}}}, {COMPAT}}}]",
        "providers[1].name: 'a' is taken by providers[0]",
    ),
    ("named-cli", "providers: [{name: cli, type: llama_cpp}]", "providers[0].name: 'cli' is a"),
    ("named-pool", "providers: [{name: pool, type: llama_cpp}]", "providers[0].name: 'pool' is a"),
    (
        "model-twice",
        LOCAL + "models: [{id: m, providers: [{provider: local}]},"
        " {id: m, providers: [{provider: local}]}]",
        "models[1].id: 'm' is taken by models[0]",
    ),
    (
        "member-twice",
        LOCAL + "models: [{id: m, providers: [{provider: local}, {provider: local}]}]",
        "models[0].providers: 'local' stands there 2 times",
    ),
    (
        "member-unknown",
        LOCAL + "models: [{id: m, providers: [{provider: loca}]}]",
        "models[0].providers[0].provider: no provider has the name or type 'loca'; did you mean"
        " 'local'?",
    ),
    (
        "route-twice",
        OPENAI + "{model_routes: [{model: m, adapter: local}, {model: m, adapter: local}]}",
        "openai.model_routes[1].model: 'm' is taken by openai.model_routes[0]",
    ),
    (
        "route-unknown",
        OPENAI + "{model_routes: [{model: m, adapter: nobody}]}",
        "openai.model_routes[0].adapter: no provider has the name or type 'nobody'",
    ),
    (
        "fallback-ambiguous",
        TWO + "openai: {adapter: openai_compat}",
        "openai.adapter: several providers have the type 'openai_compat': a, b",
    ),
    ("target-alone", OPENAI + "{target: m}", "openai.target: has no effect without"),
    (
        "pool-unknown",
        OPENAI + "{model_routes: [{model: m, adapter: pool}]}",
        "openai.model_routes[0].target: no entry of 'models' has the id 'm'",
    ),
    # later versions
    ("later-cli", LOCAL + "cli: {}", "cli: not available in this version"),
    ("later-box", LOCAL + "code_interpreter:", "code_interpreter: not available in this version"),
    ("later-state", LOCAL + "state: {}", "state: not available in this version"),
    ("later-responses", OPENAI + "{responses: {}}", "openai.responses: not available"),
    ("later-fallback", OPENAI + "{adapter: cli}", "openai.adapter: 'cli' is not available"),
    (
        "later-route",
        OPENAI + "{model_routes: [{model: m, adapter: cli, target: codex}]}",
        "openai.model_routes[0].adapter: 'cli' is not available in this version",
    ),
]


@pytest.mark.parametrize(
    ("text", "fault"), [pytest.param(text, fault, id=name) for name, text, fault in REFUSED]
)
def test_a_fault_is_told_with_its_path(text: str, fault: str) -> None:
    """Each kind of fault is one line, and that line begins with the path of its key."""
    found = faults(text, EMPTY="")
    assert len([line for line in found if line.startswith(fault)]) == 1, found


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(OPENAI + "{adapter: pool}", id="fallback-is-the-pool"),
        pytest.param(OPENAI + "{adapter: llama_cpp, target: m}", id="fallback-by-type"),
        pytest.param(
            "models: [{id: m, providers: [{provider: llama_cpp}]}]\n"
            + OPENAI
            + "{model_routes: [{model: n, adapter: pool, target: m}, {model: m, adapter: pool}]}",
            id="routes-to-the-pool",
        ),
        pytest.param(
            LOCAL + "models: [{id: m, providers: [{provider: local, target: a},"
            " {provider: local, target: b}]}]",
            id="one-provider-two-targets",
        ),
    ],
)
def test_every_way_to_refer_is_taken(text: str) -> None:
    """An adapter is a provider's name, a type that one provider has, or the pool."""
    assert load(text).providers[0].name == "local"


def test_all_faults_come_together() -> None:
    """One error holds every fault: of the text, of single values, and between sections."""
    found = faults(
        "openai: {target: '${NO}', adapter: x, limits: {body_mib: 0}}\n"
        "providers: [{name: a, type: llama_cpp, slot: 1}, {name: a, type: b}]\nstate: {}\n"
    )
    assert [line.partition(": ")[0] for line in found] == [
        "openai.target",
        "openai.limits.body_mib",
        "providers[0].slot",
        "state",
        "providers[1].name",
        "providers[1].type",
        "openai.adapter",
    ]


def test_a_missing_variable_is_one_fault_only() -> None:
    """What is wrong with a value because its variable is missing is not told again."""
    found = faults("providers: [{name: '${NO}', type: llama_cpp, slots: '${NO}'}]")
    assert [line.partition(": ")[0] for line in found] == [
        "providers[0].name",
        "providers[0].slots",
    ]


def test_without_types_any_type_is_taken() -> None:
    """Whoever does not know the provider types does not judge them."""
    text = "providers: [{name: a, type: future, url: 'http://h/v1'}]"
    assert config.load(text, environ={}).providers[0].type == "future"


# Secrets

SECRET = "sk-very-secret"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("bearer_token: '${KEY} x'", id="bad-token"),
        pytest.param("bearer_token: ['${KEY}']", id="wrong-type"),
        pytest.param("bearer_token:sk-very-secret: 1", id="no-space-after-colon"),
        pytest.param("bearer_token: *sk-very-secret", id="read-as-alias"),
        pytest.param("bearer_token: !sk-very-secret", id="read-as-tag"),
        pytest.param("bearer_token: [sk-very-secret", id="never-closed"),
        pytest.param("adapter: '${KEY}'", id="in-the-wrong-place"),
    ],
)
def test_no_fault_shows_a_secret(text: str) -> None:
    """Whatever is wrong with a secret or its place, its value is in no message."""
    found = faults(f"openai: \n  {text}\n" + LOCAL, KEY=SECRET)
    assert found
    assert SECRET not in "\n".join(found)


def test_no_text_of_settings_shows_a_secret() -> None:
    """Settings may be logged: tokens and keys are hidden in them."""
    text = f"providers: [{COMPAT}, api_key: {SECRET}}}]\nopenai: {{bearer_token: {SECRET}}}"
    settings = load(text)
    assert SECRET not in f"{settings} {settings!r} {settings.model_dump_json()}"


def test_a_fault_keeps_to_its_line() -> None:
    """Text that would break a line is escaped."""
    found = faults(OPENAI + '{adapter: "a\\nb\\ud800"}')
    assert found == ["openai.adapter: no provider has the name or type 'a\\u000ab\\ud800'"]


# Anything at all

WORDS = st.sampled_from(
    [
        "openai",
        "models",
        "providers",
        "name",
        "type",
        "url",
        "engine",
        "autoscaling",
        "min",
        "max",
        "llama_cpp",
        "pool",
        "adapter",
        "target",
        "id",
        "bearer_token",
        "limits",
        "${A}",
        "${",
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | WORDS | st.dates(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=20,
)


def told(text: str) -> list[str]:
    try:
        load(text, A="value")
    except ConfigError as error:
        return error.faults or ["an error without a fault"]
    return []


@given(st.text())
def test_no_text_breaks_the_reader(text: str) -> None:
    """Any text at all either is a configuration or is a configuration error."""
    assert all(": " in fault for fault in told(text))


@given(st.dictionaries(WORDS, VALUES))
def test_no_shape_breaks_the_reader(data: dict[str, Any]) -> None:
    """Any YAML value in any place either is valid or is told as a fault, one line each."""
    assert all(": " in fault and "\n" not in fault for fault in told(yaml.safe_dump(data)))
