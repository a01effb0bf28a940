"""Names of the chat-template sentinels that are known to leak into text."""

from __future__ import annotations

#: Control tokens of common chat templates. Longest 19 characters: what a stream may hold back.
KNOWN_SENTINELS: tuple[str, ...] = (
    "<|mask_start|>",
    "<|mask_end|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|im_sep|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|begin_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|tool_call_begin|>",
    "<|tool_call_end|>",
    "<|tool_call|>",
    "<|tool_calls|>",
    "<|python_tag|>",
    "<|end|>",
)
