"""vLLM-MLX, a server for Apple's processors, reached by its URL.

Its runtime marks the whole of a stream as reasoning and does not stop thinking when it is told
to, so that there is no way to switch it off. `max_completion_tokens` is not in its schema.
"""

from __future__ import annotations

from serve_app.runs import ProviderFacts, ThinkControl

PROVIDER = ProviderFacts(
    type="vllm_mlx",
    health_path="/health",
    max_tokens_field="max_tokens",
    think=ThinkControl(
        on={"chat_template_kwargs": {"enable_thinking": True}},
        budget=("chat_template_kwargs", "thinking_token_budget"),
    ),
)
