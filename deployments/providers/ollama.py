"""Ollama's OpenAI-compatible API (`…/v1`), reached by its URL.

`max_completion_tokens` is not in its schema. It has no health path of its own: its `/v1/models`
answers while it is well.
"""

from __future__ import annotations

from serve_app.runs import ProviderFacts

PROVIDER = ProviderFacts(type="ollama", max_tokens_field="max_tokens")
