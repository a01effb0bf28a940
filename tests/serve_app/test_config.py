"""Settings: what `edge.yaml` may say, the shipped file and its schema."""

import json
import pickle
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import ValidationError

from serve_app import config
from serve_app.errors import ConfigError

TYPES = ("llama_cpp", "ollama", "openai_compat", "vllm", "vllm_mlx")
CONFIGS = Path(__file__).parents[2] / "configs"
LOCAL = "providers: [{name: local, type: llama_cpp}]\n"


def load(text: str, **environ: str) -> config.Settings:
    return config.load(text, environ=environ, types=TYPES)


# What is taken


def test_the_shortest_file_is_one_provider() -> None:
    """A built-in engine is configured by a name and a type; the rest has defaults."""
    settings = load(LOCAL)
    assert settings.providers[0].engine == config.Engine()
    assert settings.openai.limits.body_mib == 32


@pytest.mark.parametrize(
    ("entry", "slots"),
    [
        pytest.param("{name: a, type: llama_cpp}", 4, id="own-engine"),
        pytest.param("{name: a, type: llama_cpp, slots: 2}", 2, id="own-engine-said"),
        pytest.param("{name: a, type: llama_cpp, url: 'http://h:1/v1'}", 64, id="by-url"),
        pytest.param("{name: a, type: openai_compat, url: 'http://h:1/v1'}", 64, id="other"),
    ],
)
def test_slots_default_to_what_the_place_can_bear(entry: str, slots: int) -> None:
    """A slot of the built-in engine costs a whole context, so it has few of them."""
    assert load(f"providers: [{entry}]").providers[0].slots == slots


def test_null_is_the_same_as_absent() -> None:
    """A section whose every line is commented out is no fault."""
    assert load("openai:\nmodels:\n" + LOCAL) == load(LOCAL)


def test_merge_keys_are_understood() -> None:
    """An anchor can be shared, and the entry's own key wins over the shared one."""
    text = """
        providers:
          - &first {name: a, type: openai_compat, url: "http://h/v1", slots: 3}
          - {<<: *first, name: b}
    """
    assert [(p.name, p.slots) for p in load(text).providers] == [("a", 3), ("b", 3)]


def test_settings_cannot_be_changed() -> None:
    """Settings are frozen."""
    with pytest.raises(ValidationError):
        load(LOCAL).openai.adapter = "x"


def test_settings_survive_a_pickle() -> None:
    """Settings go to a replica whole, with the names of their variables."""
    settings = load(LOCAL + "openai: {bearer_token: '${TOKEN}'}", TOKEN="s3cret")
    again = pickle.loads(pickle.dumps(settings))
    assert (again, again.variables) == (settings, frozenset({"TOKEN"}))


def test_what_concerns_tools_and_thinking_has_defaults() -> None:
    """Nothing is strict, three attempts in all, no sentinels but the known, all fields go out."""
    settings = load(LOCAL + "openai: {model_routes: [{model: m, adapter: local}]}")
    openai = settings.openai
    assert (openai.strict_output, openai.tool_validation_attempts, openai.sentinels) == (
        False,
        3,
        [],
    )
    assert openai.model_routes[0].tool_validation_attempts is None
    assert settings.providers[0].takes_think_fields is True


def test_what_concerns_tools_and_thinking_can_be_said() -> None:
    """Each has its key, and the longest sentinel is one of 64 characters."""
    text = (
        "providers: [{name: local, type: llama_cpp, takes_think_fields: false}]\n"
        f"openai: {{strict_output: true, tool_validation_attempts: 10, sentinels: [{'x' * 64}],"
        " model_routes: [{model: m, adapter: local, tool_validation_attempts: 1}]}"
    )
    settings = load(text)
    openai = settings.openai
    assert (openai.strict_output, openai.tool_validation_attempts) == (True, 10)
    assert openai.sentinels == ["x" * 64]
    assert openai.model_routes[0].tool_validation_attempts == 1
    assert settings.providers[0].takes_think_fields is False


# Warnings


MLX = """
providers:
  - {name: gpu, type: vllm, url: "http://gpu/v1"}
  - {name: mac-1, type: vllm_mlx, url: "http://mac-1/v1"}
  - {name: mac-2, type: vllm_mlx, url: "http://mac-2/v1"}
models:
  - {id: both, providers: [{provider: mac-1}, {provider: vllm}]}
  - {id: macs, providers: [{provider: mac-1}, {provider: mac-2}]}
openai:
  strict_output: STRICT
  adapter: mac-2
  model_routes:
    - {model: quick, adapter: gpu}
    - {model: slow, adapter: mac-1}
    - {model: pooled, adapter: pool, target: macs}
    - {model: macs, adapter: pool}
    - {model: mixed, adapter: pool, target: both}
"""


def warnings(text: str) -> list[str]:
    return load(text).warnings({"vllm_mlx"})


def test_strict_output_warns_of_what_it_would_refuse() -> None:
    """A route, a pool or the fallback of which no provider can switch thinking off, by name."""
    found = warnings(MLX.replace("STRICT", "true"))
    assert [line.partition(": ")[0] for line in found] == [
        "openai.model_routes[1]",
        "openai.model_routes[2]",
        "openai.model_routes[3]",
        "models[1]",
        "openai.adapter",
    ]
    assert "'slow'" in found[0]
    assert "(mac-1)" in found[0]
    assert "'macs'" in found[3]
    assert "(mac-1, mac-2)" in found[3]


def test_without_strict_output_there_is_no_warning() -> None:
    """Thinking that cannot be switched off is then refused only to who asks for that."""
    assert warnings(MLX.replace("STRICT", "false")) == []


def test_the_fallback_to_the_pool_warns_by_the_pools_entries() -> None:
    """What the fallback reaches there is named already."""
    text = MLX.replace("STRICT", "true").replace("adapter: mac-2", "adapter: pool")
    assert [line for line in warnings(text) if line.startswith("openai.adapter")] == []


# Provider look-up


TWO = """
providers:
  - {name: local, type: llama_cpp}
  - {name: a, type: openai_compat, url: "http://a/v1"}
  - {name: b, type: openai_compat, url: "http://b/v1"}
"""


@pytest.mark.parametrize(
    ("asked", "name"), [("a", "a"), ("local", "local"), ("llama_cpp", "local")]
)
def test_a_provider_is_found_by_name_or_lone_type(asked: str, name: str) -> None:
    """A name is looked up first; a type means the only provider that has it."""
    assert load(TWO).provider(asked).name == name


@pytest.mark.parametrize("asked", ["openai_compat", "nobody"])
def test_an_unclear_provider_is_not_found(asked: str) -> None:
    """A type that several have, and a name that none has, are look-up errors."""
    with pytest.raises(LookupError):
        load(TWO).provider(asked)


# The environment


@pytest.mark.parametrize(
    ("written", "environ", "value"),
    [
        pytest.param("${A}", {"A": "x"}, "x", id="whole"),
        pytest.param("p-${A}-${B}", {"A": "x", "B": "y"}, "p-x-y", id="inside"),
        pytest.param("${A:-d}", {}, "d", id="default"),
        pytest.param("${A:-d}", {"A": ""}, "d", id="default-for-empty"),
        pytest.param("${A:-}", {}, "", id="empty-default"),
        pytest.param("${A:-x:-y}", {}, "x:-y", id="default-with-colon"),
        pytest.param("$${A}", {"A": "x"}, "${A}", id="escaped"),
        pytest.param("$A $$ $", {"A": "x"}, "$A $$ $", id="lone-dollar"),
        pytest.param("${A}", {"A": "${B}", "B": "x"}, "${B}", id="not-twice"),
        pytest.param("${A}", {"A": "{a: [b, 'c"}, "{a: [b, 'c", id="yaml-syntax"),
    ],
)
def test_variables_are_put_in(written: str, environ: dict[str, str], value: str) -> None:
    """`${NAME}` in a value stands for the environment; what comes from there is only text."""
    text = LOCAL + f"openai: {{adapter: local, target: {json.dumps(written)}}}"
    assert load(text, **environ).openai.target == value


def test_a_variable_may_be_a_number() -> None:
    """A whole value from the environment fits a number's field."""
    settings = load("providers: [{name: a, type: llama_cpp, slots: '${N}'}]", N="7")
    assert settings.providers[0].slots == 7


def test_variables_are_named_for_those_who_withhold_them() -> None:
    """Every variable the file refers to is known by name, used or not; comments do not count."""
    text = LOCAL + "openai: {bearer_token: '${A:-}', target: '${B:-}'}\n# ${C}"
    assert load(text).variables == {"A", "B"}


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `environ` the process's own variables are used."""
    monkeypatch.setenv("EDGE_TEST_TOKEN", "from-process")
    settings = config.load(LOCAL + "openai: {bearer_token: '${EDGE_TEST_TOKEN}'}")
    assert settings.openai.bearer_token.get_secret_value() == "from-process"


def test_an_engine_gets_the_environment_but_not_our_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is withheld is left out, and everything else is passed on."""
    monkeypatch.setenv("EDGE_TEST_TOKEN", "x")
    monkeypatch.setenv("EDGE_TEST_OTHER", "y")
    given_on = config.engine_environment({"EDGE_TEST_TOKEN"})
    assert (given_on.get("EDGE_TEST_TOKEN"), given_on.get("EDGE_TEST_OTHER")) == (None, "y")


# Files and schema


def test_read_tells_why_a_file_cannot_be_read(tmp_path: Path) -> None:
    """A file that is not there is a configuration error, not a traceback."""
    with pytest.raises(ConfigError, match="No such file"):
        config.read(tmp_path / "edge.yaml")


def test_read_refuses_what_is_no_text(tmp_path: Path) -> None:
    """A file that is not UTF-8 is a configuration error."""
    path = tmp_path / "edge.yaml"
    path.write_bytes(b"a: \xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        config.read(path)


def test_read_bears_a_byte_order_mark(tmp_path: Path) -> None:
    """A file that a Windows editor saved is read."""
    path = tmp_path / "edge.yaml"
    path.write_text(LOCAL, encoding="utf-8-sig")
    assert config.read(path, environ={}, types=TYPES) == load(LOCAL)


def test_the_default_file_is_sound() -> None:
    """The file we ship serves the built-in model by name, and no other model."""
    settings = config.read(CONFIGS / "edge.yaml", environ={}, types=TYPES)
    assert [m.id for m in settings.models] == ["smollm2"]
    assert (settings.openai.adapter, settings.providers[0].slots) == ("", 2)


def test_the_default_files_examples_are_sound() -> None:
    """With the comments of the shipped file opened, its examples are valid too."""
    text = (CONFIGS / "edge.yaml").read_text(encoding="utf-8")
    opened = re.sub(r"^( *)# (?=( *)(- |\{|[a-z_]+:))", r"\1", text, flags=re.MULTILINE)
    settings = load(opened)
    assert len(settings.providers) == 4
    assert settings.openai.model_routes[0].model == "coder"


def validator() -> Any:
    schema = config.json_schema(TYPES)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_default_file_fits_the_schema() -> None:
    """The schema takes the shipped file as it stands, variables and all."""
    data = yaml.safe_load((CONFIGS / "edge.yaml").read_text(encoding="utf-8"))
    assert list(validator().iter_errors(data)) == []


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        pytest.param("{name: a, type: llama_cpp, slots: '${N}'}", True, id="variable-as-number"),
        pytest.param("{name: a, type: llama_cpp, slots: 'many'}", False, id="text-as-number"),
        pytest.param("{name: a, type: llama_cp}", False, id="unknown-type"),
        pytest.param("{name: a, type: llama_cpp, slot: 1}", False, id="unknown-key"),
        pytest.param("{name: a}", False, id="no-type"),
    ],
)
def test_the_schema_judges_as_the_code_does(text: str, fits: bool) -> None:
    """An editor marks what the start would refuse, and lets variables be."""
    assert validator().is_valid(yaml.safe_load(f"providers: [{text}]")) is fits
