"""Provider types: every file in the folder is one, and says what it has to."""

import json
from pathlib import Path

import pytest

from deployments import providers
from serve_app import config
from serve_app.config import Engine
from serve_app.errors import ConfigError
from serve_app.runs import ThinkControl

FOLDER = Path(providers.__file__).parent


def test_every_file_of_the_folder_is_a_type() -> None:
    """To put a file there is all it takes."""
    assert providers.names() == sorted(p.stem for p in FOLDER.glob("[a-z]*.py"))


@pytest.mark.parametrize("name", providers.names())
def test_a_type_is_named_as_its_file(name: str) -> None:
    """The facts carry the name by which the configuration calls them."""
    assert providers.load(name).facts.type == name


@pytest.mark.parametrize("name", providers.names())
def test_an_engine_has_a_command(name: str) -> None:
    """A type has an engine exactly when it knows how to start one."""
    kind = providers.load(name)
    assert kind.facts.has_engine is (kind.command is not None)


@pytest.mark.parametrize("name", [n for n in providers.names() if providers.load(n).command])
def test_a_command_says_where_to_listen(name: str) -> None:
    """Address and port come from the caller, so that engines never meet."""
    command = providers.load(name).command
    assert command is not None
    words = " ".join(command(Engine(), slots=3, host="10.0.0.7", port=4711, python="py"))
    assert words.startswith("py ")
    assert "10.0.0.7" in words
    assert "4711" in words


def test_an_unknown_type_is_told_with_the_nearest() -> None:
    """A wrong name is answered with the known ones."""
    with pytest.raises(ConfigError, match=r"unknown .* 'llama_cp', .* did you mean 'llama_cpp'\?"):
        providers.load("llama_cp")


def test_the_committed_schema_names_every_type() -> None:
    """`edge.schema.json` is current: a new type has to be in it."""
    path = FOLDER.parents[1] / "configs" / "edge.schema.json"
    schema = json.loads(path.read_text(encoding="utf-8"))
    assert schema == config.json_schema(providers.names())


@pytest.mark.parametrize("name", [n for n in providers.names() if not providers.load(n).command])
def test_a_type_without_an_engine_needs_a_url(name: str) -> None:
    """The configuration is refused when it is read, and not when a replica starts."""
    for place in ("", ", engine: {}"):
        with pytest.raises(ConfigError, match="url: is required"):
            config.load(f"providers: [{{name: a, type: {name}{place}}}]", environ={})
    config.load(f"providers: [{{name: a, type: {name}, url: 'http://h/v1'}}]", environ={})


OFF = {"chat_template_kwargs": {"enable_thinking": False}}
ON = {"chat_template_kwargs": {"enable_thinking": True}}
BUDGET = ("chat_template_kwargs", "thinking_token_budget")


@pytest.mark.clause("THINK-6", "THINK-7", "THINK-8", "THINK-9")
@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("vllm", ThinkControl(off=OFF, on=ON, budget=BUDGET)),
        ("vllm_mlx", ThinkControl(off=None, on=ON, budget=BUDGET)),
        ("lemonade", ThinkControl(off=OFF, on=ON, budget=BUDGET)),
        ("ollama", None),
        ("openai_compat", None),
        ("llama_cpp", None),
    ],
)
def test_how_a_type_is_told_about_thinking(name: str, table: ThinkControl | None) -> None:
    """By its table; one without a table gets the caller's fields."""
    assert providers.load(name).facts.think == table


def test_who_cannot_stop_thinking_is_known() -> None:
    """The check of the configuration warns of these."""
    assert providers.always_thinking() == {"vllm_mlx"}


def test_llama_cpp_hands_its_settings_on() -> None:
    """Each setting of the engine is an option of the server; what is not set is left out."""
    command = providers.load("llama_cpp").command
    assert command is not None
    engine = Engine(model="/m.gguf", context=512, threads=2)
    words = command(engine, slots=3, host="127.0.0.1", port=1, python="py")
    assert words[3:] == [
        "--model=/m.gguf",
        "--host=127.0.0.1",
        "--port=1",
        "--context=512",
        "--parallel=3",
        "--threads=2",
    ]
