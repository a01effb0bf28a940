"""vLLM's OpenAI server, reached by its URL.

Thinking is controlled through the chat template alone. The server ignores top-level fields that
it does not know, so that a `think` there would be a wish that nobody hears.
"""

from __future__ import annotations

from serve_app.runs import ProviderFacts, ThinkControl

PROVIDER = ProviderFacts(
    type="vllm",
    health_path="/health",
    think=ThinkControl(
        off={"chat_template_kwargs": {"enable_thinking": False}},
        on={"chat_template_kwargs": {"enable_thinking": True}},
        budget=("chat_template_kwargs", "thinking_token_budget"),
    ),
)
