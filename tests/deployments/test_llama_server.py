"""The built-in engine: llama.cpp's server with the real small model, as a real process."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from deployments import engine, llama_server
from serve_app.config import Engine
from serve_app.errors import ConfigError
from tests.deployments.programs import llama, running

pytest.importorskip("xllamacpp", reason="the embedded engine is an optional part")

CONTEXT = 1024
PERSONA = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
ASK = {"role": "user", "content": "What is the weather in Paris?"}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}},
            "required": ["city"],
        },
    },
}
TIME: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_time",
        "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
    },
}
TAUGHT = f"""

# Tools

These functions are at your service, each as a JSON schema:
<tools>
{json.dumps(WEATHER)}
</tools>

To call a function, answer with its name and arguments as JSON, like this:
<tool_call>
{{"name": "function-name", "arguments": {{"argument": "value"}}}}
</tool_call>
What it gives back follows in <tool_response> tags."""


def call(number: str, city: str) -> dict[str, Any]:
    arguments = json.dumps({"city": city})
    return {
        "id": number,
        "type": "function",
        "function": {"name": "get_weather", "arguments": arguments},
    }


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def start(*options: str, **environ: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", llama_server.__file__, *options],
        env=os.environ | environ,  # noqa: TID251  (a test's own process)
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.fixture(scope="module")
def server() -> Iterator[httpx.Client]:
    """The real server, two requests at once, with a client for it."""
    port = free_port()
    process = start(f"--port={port}", "--parallel=2", f"--context={CONTEXT}")
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        deadline = time.monotonic() + 60
        while True:
            try:
                if client.get("/health").status_code == 200:
                    break
            except httpx.TransportError:
                assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield client
    process.terminate()
    _, said = process.communicate(timeout=10)
    assert (process.returncode, said) == (0, b"")


def rendered(server: httpx.Client, **body: Any) -> str:
    return server.post("/apply-template", json=body).json()["prompt"]


def answer(server: httpx.Client, **body: Any) -> dict[str, Any]:
    body = {"max_tokens": 40, "temperature": 0, **body}
    response = server.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]


# The chat template


def test_a_plain_chat_is_the_models_own_format(server: httpx.Client) -> None:
    """Without tools a chat reads as in the model's own template, its persona included."""
    assert rendered(server, messages=[ASK]) == (
        f"<|im_start|>system\n{PERSONA}<|im_end|>\n"
        "<|im_start|>user\nWhat is the weather in Paris?<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("role", ["system", "developer"])
def test_the_callers_system_message_takes_the_personas_place(
    server: httpx.Client, role: str
) -> None:
    """A system message replaces the persona; `developer` is its newer name."""
    messages = [{"role": role, "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert rendered(server, messages=messages) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_text_parts_are_read(server: httpx.Client) -> None:
    """Content as a list of text parts is the text of them all."""
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    prompt = rendered(server, messages=[{"role": "user", "content": parts}])
    user = prompt.partition("<|im_start|>user\n")[2].partition("<|im_end|>")[0]
    assert user.split() == ["one", "two"]


def test_tools_are_taught_in_the_system_message(server: httpx.Client) -> None:
    """With tools the system message lists them and shows the form of a call."""
    assert rendered(server, messages=[ASK], tools=[WEATHER]) == (
        f"<|im_start|>system\n{PERSONA}{TAUGHT}<|im_end|>\n"
        "<|im_start|>user\nWhat is the weather in Paris?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_calls_and_results_of_the_past_are_written_as_taught(server: httpx.Client) -> None:
    """History reads in the very form that the system message teaches."""
    messages = [
        ASK,
        {"role": "assistant", "content": None, "tool_calls": [call("a", "Paris")]},
        {"role": "tool", "tool_call_id": "a", "content": "sunny"},
        {
            "role": "assistant",
            "content": "Two more.",
            "tool_calls": [call("b", "Rome"), call("c", "Oslo")],
        },
        {"role": "tool", "tool_call_id": "b", "content": "rain"},
        {"role": "tool", "tool_call_id": "c", "content": "snow"},
        {"role": "user", "content": "Thanks"},
    ]
    prompt = rendered(server, messages=messages, tools=[WEATHER])
    assert prompt.partition("Paris?<|im_end|>\n")[2] == (
        "<|im_start|>assistant\n<tool_call>\n"
        '{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\nsunny\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\nTwo more.\n<tool_call>\n"
        '{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>\n<tool_call>\n'
        '{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\nrain\n</tool_response>\n"
        "<tool_response>\nsnow\n</tool_response><|im_end|>\n"
        "<|im_start|>user\nThanks<|im_end|>\n<|im_start|>assistant\n"
    )


# Answers


def test_each_slot_has_the_whole_context(server: httpx.Client) -> None:
    """llama.cpp divides its context among the slots, so it gets that much more of it."""
    props = server.get("/props").json()
    assert (props["total_slots"], props["default_generation_settings"]["n_ctx"]) == (2, CONTEXT)


def test_the_model_answers(server: httpx.Client) -> None:
    """A chat completion comes from the real model, within its token limit."""
    choice = answer(server, messages=[ASK], max_tokens=4)
    assert choice["finish_reason"] == "length"
    assert choice["message"]["content"].strip()


def test_a_grammar_binds_the_answer(server: httpx.Client) -> None:
    """The small model says exactly what a grammar lets it say."""
    choice = answer(server, messages=[ASK], grammar='root ::= "sunny"')
    assert (choice["message"]["content"], choice["finish_reason"]) == ("sunny", "stop")


def test_a_schema_binds_the_answer(server: httpx.Client) -> None:
    """`response_format` with a schema gives JSON of that schema."""
    schema = {"type": "object", "properties": {"n": {"enum": [7]}}, "required": ["n"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    choice = answer(server, messages=[ASK], response_format=wanted)
    assert json.loads(choice["message"]["content"]) == {"n": 7}


@pytest.mark.parametrize("seed", [1, 2])
def test_a_call_that_was_begun_is_ended_as_a_native_call(server: httpx.Client, seed: int) -> None:
    """With the tag given and a call required, llama.cpp's grammar allows nothing but a call."""
    choice = answer(
        server,
        messages=[ASK, {"role": "assistant", "content": "<tool_call>\n"}],
        tools=[TIME, WEATHER],
        tool_choice="required",
        temperature=1.5,
        seed=seed,
        max_tokens=40,
    )
    first = choice["message"]["tool_calls"][0]["function"]
    assert choice["message"]["content"] == ""
    assert first["name"] in {"get_time", "get_weather"}
    assert set(json.loads(first["arguments"])) <= {"city"}


def test_a_named_call_that_was_begun_has_that_name(server: httpx.Client) -> None:
    """With the name given too, the call is of that tool and its arguments fit its schema."""
    begun = '<tool_call>\n{"name": "get_weather", '
    choice = answer(
        server,
        messages=[ASK, {"role": "assistant", "content": begun}],
        tools=[TIME, WEATHER],
        tool_choice="required",
        max_tokens=40,
    )
    first = choice["message"]["tool_calls"][0]["function"]
    assert (first["name"], list(json.loads(first["arguments"]))) == ("get_weather", ["city"])


async def test_a_kept_engine_answers_with_its_key_only() -> None:
    """As a provider's engine it serves whoever has the key of this generation, and nobody else."""
    async with (
        running(llama(Engine(context=512))) as kept,
        httpx.AsyncClient(timeout=60) as client,
    ):
        await kept.wait_ready(60)
        body = {"messages": [ASK], "max_tokens": 2}
        path = f"{kept.url}/chat/completions"
        assert (await client.post(path, json=body, headers=kept.headers)).status_code == 200
        assert (await client.post(path, json=body)).status_code == 401


async def test_a_killed_engine_is_back_within_seconds() -> None:
    """kill -9 of the real engine: a new generation answers within five seconds."""
    async with running(llama(Engine(context=512))) as kept:
        await kept.wait_ready(60)
        assert kept.pid is not None
        os.kill(kept.pid, 9)
        await kept.wait_ended(1)
        await kept.wait_ready(5)
        assert kept.generation == 2


# What is refused


def refused(*options: str) -> tuple[int, str]:
    process = start(f"--port={free_port()}", *options)
    _, said = process.communicate(timeout=60)
    return process.returncode, said.decode()


def test_a_missing_model_is_one_line(tmp_path: Path) -> None:
    """A model file that is not there: one line that names it, exit code 2."""
    path = tmp_path / "none.gguf"
    assert refused(f"--model={path}") == (
        2,
        f"llama_server: the model file {path} cannot be read: No such file or directory\n",
    )


def test_a_file_that_is_no_model_is_one_line(tmp_path: Path) -> None:
    """A file of another kind: one line, exit code 2."""
    path = tmp_path / "text.gguf"
    path.write_bytes(b"hello")
    assert refused(f"--model={path}") == (
        2,
        f"llama_server: the model file {path} is not a GGUF file\n",
    )


def test_a_damaged_model_is_refused(tmp_path: Path) -> None:
    """A file that only begins as a model: llama.cpp's reason, then our line, exit code 2."""
    path = tmp_path / "half.gguf"
    path.write_bytes(b"GGUF" + bytes(range(256)) * 8)
    code, said = refused(f"--model={path}")
    assert code == 2
    assert said.splitlines()[-1].startswith(f"llama_server: llama.cpp cannot serve {path}: ")


def test_a_missing_template_is_one_line() -> None:
    """A chat template that is not there: one line, exit code 2."""
    code, said = refused("--chat-template=/no/such.jinja")
    assert (code, said.count("\n")) == (2, 1)
    assert "/no/such.jinja cannot be read" in said


def test_a_taken_port_is_no_misconfiguration() -> None:
    """A port that somebody took in between: exit code 1, so that it is tried again."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = start(f"--port={taken.getsockname()[1]}")
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said.decode().startswith("llama_server: cannot listen on 127.0.0.1:")


async def test_a_missing_model_stops_a_kept_engine_at_once(tmp_path: Path) -> None:
    """The operator reads the server's own line in the error of the first start."""
    path = tmp_path / "none.gguf"
    async with running(llama(Engine(model=str(path)))) as kept:
        with pytest.raises(ConfigError, match=f"the model file {path} cannot be read"):
            await kept.wait_ready(60)


def test_at_least_one_core_is_used() -> None:
    """Whatever the host's limits, there is a core to use."""
    assert 1 <= llama_server.usable_cores() <= (os.cpu_count() or 1)


def test_the_key_variable_is_the_one_that_engines_are_given() -> None:
    """Both sides of the key mean the same variable, though neither imports the other."""
    assert engine.KEY_VARIABLE == llama_server.KEY_VARIABLE
