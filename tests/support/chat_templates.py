"""Chat templates as other model families have them, in the control tokens that the tokenizers of tests know."""

import copy
import tempfile
from pathlib import Path

from runners.policy.chat_tokens import ChatTokens
from runners.policy.codecs import LocalCodec

_HEAD = "'<|im_start|>' + m.role + '<|im_end|>\\n\\n'"
_MERGED = (
    "{%- if messages[0].role == 'system' -%}{%- set system = messages[0].content + '\\n\\n' -%}"
    "{%- set messages = messages[1:] -%}{%- else -%}{%- set system = '' -%}{%- endif -%}"
)
FOREIGN = {
    # Llama 3: a header of its own, and another token that ends a turn.
    "headers": "{%- for m in messages -%}{{- " + _HEAD + " + m.content + '<|endoftext|>' -}}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant<|im_end|>\\n\\n' -}}{%- endif -%}",
    # Gemma: no system role, its prompt stands before the first question; the model's role has another name.
    "system merged": _MERGED + "{%- for m in messages -%}"
    "{{- '<|im_start|>' + ('model' if m.role == 'assistant' else m.role) + '\\n' -}}"
    "{{- (system if loop.first else '') + m.content | trim + '<|im_end|>\\n' -}}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>model\\n' -}}{%- endif -%}",
    # Qwen3: earlier replies lose their thoughts, and an empty thought tells the model not to think.
    "thinking": "{%- for m in messages -%}{%- set past = m.role == 'assistant' and not loop.last -%}"
    "{{- '<|im_start|>' + m.role + '\\n' + (m.content.split('</think>')[-1] if past else m.content) -}}"
    "{{- '<|im_end|>\\n' -}}{%- endfor -%}{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}"
    "{%- if not enable_thinking -%}{{- '<think>\\n\\n</think>\\n\\n' -}}{%- endif -%}{%- endif -%}",
}


_CONTROL_TOKENS_OF_GEMMA = {
    "<|im_start|>": "<start_of_turn>",
    "<|im_end|>": "<end_of_turn>",
    "<|endoftext|>": "<eos>",
}


def with_template(tokenizer, template):
    """A copy of a tokenizer, with another chat template, in control tokens that it has; None keeps its own."""
    tokenizer = copy.deepcopy(tokenizer)
    if template and "<start_of_turn>" in tokenizer.get_vocab():
        for token, its_own in _CONTROL_TOKENS_OF_GEMMA.items():
            template = template.replace(token, its_own)
    tokenizer.chat_template = template or tokenizer.chat_template
    return tokenizer


def chat_tokens(tokenizer, thinking=False):
    """``ChatTokens`` of a tokenizer of transformers. Nothing in it waits, so it needs no event loop."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        codec = LocalCodec.of(Path(folder), thinking)
    made = ChatTokens.of(codec, codec.added)
    try:
        made.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waited")
