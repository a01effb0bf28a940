"""Control tokens of chat templates that leak into a model's text."""

from __future__ import annotations

#: Each stands for itself in no answer. `</s>` is not here: it is also an HTML tag.
KNOWN_SENTINELS: tuple[str, ...] = (
    "<|mask_end|>",
    "<|mask_start|>",
    "<|im_end|>",
    "<|im_start|>",
    "<|im_sep|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|end|>",
    "<|user|>",
    "<|assistant|>",
    "<|system|>",
    "<|tool_call_end|>",
    "<|tool_call_begin|>",
    "<|tool_call|>",
    "<|tool_calls|>",
    "<|python_tag|>",
    "<|start|>",
    "<|message|>",
    "<|channel|>",
    "<|return|>",
    "<|call|>",
    "<end_of_turn>",
    "<start_of_turn>",
    "<｜begin▁of▁sentence｜>",  # noqa: RUF001 - the token's own characters
    "<｜end▁of▁sentence｜>",  # noqa: RUF001
)
