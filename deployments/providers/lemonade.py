"""Lemonade, AMD's local server, reached by its URL (`…/v1` or `…/api/v1`).

It turns thinking flags at the top level into text before the user's last message, which newer
chat templates ignore; only the template's own switch is dependable.
"""

from __future__ import annotations

from serve_app.runs import ProviderFacts, ThinkControl

PROVIDER = ProviderFacts(
    type="lemonade",
    health_path="/v1/health",
    think=ThinkControl(
        off={"chat_template_kwargs": {"enable_thinking": False}},
        on={"chat_template_kwargs": {"enable_thinking": True}},
        budget=("chat_template_kwargs", "thinking_token_budget"),
    ),
)
