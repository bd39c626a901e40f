"""Portable model folders: for transformers 4 and 5, readable by other users, with a model card."""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import yaml
from jinja2 import Environment
from tokenizers import Tokenizer

from configs.schema import Config

CARD = "README.md"
_NOT_IN_CARD = dict.fromkeys(
    ("store", "serving", "players", "frozen", "judge", "log", "checkpoint", "watch", "local"), True
) | {"run": {"dir"}}
"""Sections and keys about the environment of a run, not about its training."""
_EXAMPLE_CHARACTERS = 4000

_CARD = Environment(keep_trailing_newline=True).from_string(
    """\
---
license: {{ license or "other" }}
language: [zh]
library_name: transformers
pipeline_tag: text-generation
tags: [{{ tags | join(", ") }}]
---

# {{ title }}

Fine-tuned from `{{ base }}` in {{ dtype }}
{%- if lora_rank %}, by LoRA of rank {{ lora_rank }}, merged into the weights{% endif %}.
{% if not license %}
Its license is the one of `{{ base }}`.
{% endif %}
## Data

{{ data }}

## Evaluation

{% if results -%}
| held out | {{ compared }} |
|---|---|
{% for name, value in results -%}
| {{ name }} | {{ value }} |
{% endfor %}{% else -%}
Not evaluated.
{% endif %}
## Prompt format

The chat template is part of the tokenizer (`tokenizer.apply_chat_template`).
{%- if example %} A sequence as it was played, in full or its beginning; the model
wrote what follows each `assistant`:

{{ fence }}text
{{ example }}
{{ fence }}
{%- endif %}

## How to load

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("THIS_FOLDER", dtype="{{ dtype }}")
tokenizer = AutoTokenizer.from_pretrained("THIS_FOLDER")
```

or `vllm serve THIS_FOLDER`. Sampled in training at temperature {{ temperature }}, without top-p or top-k.

## Recipe

```yaml
{{ recipe }}```
"""
)


def make_portable(folder: Path) -> None:
    """Make a folder of transformers 5 readable by transformers 4, with the permissions of the umask.

    transformers 4 does not know the class ``TokenizersBackend``, expects ``extra_special_tokens`` to be a mapping, and
    ignores a ``rope_theta`` within ``rope_parameters``: wrong positions, without an error.
    """
    file = folder / "tokenizer_config.json"
    tokenizer = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    if tokenizer.get("tokenizer_class") == "TokenizersBackend":
        tokenizer["tokenizer_class"] = "PreTrainedTokenizerFast"
    for key in ("is_local", "local_files_only", "backend"):
        tokenizer.pop(key, None)
    if isinstance(tokenizer.get("extra_special_tokens"), list):
        tokenizer["additional_special_tokens"] = tokenizer.pop("extra_special_tokens")
    if tokenizer:
        file.write_text(json.dumps(tokenizer, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    file = folder / "config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    rope = config.get("rope_parameters") or {}
    if "rope_theta" in rope:  # not one for each type of layer
        config["rope_theta"] = rope["rope_theta"]
        scaling = {key: value for key, value in rope.items() if key != "rope_theta"}
        config["rope_scaling"] = None if scaling == {"rope_type": "default"} else scaling
        file.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    for weights in folder.glob("*.safetensors"):  # written with mode 0600
        weights.chmod(file.stat().st_mode)


def write_card(
    folder: Path,
    config: Config,
    *,
    title: str,
    data: str,
    results: Iterable[tuple[str, str]],
    compared: str,
    played: list[int] | None = None,
) -> None:
    """Write the model card of an exported folder, ``README.md``, and copy the base model's licence files.

    data: description of the training data. results: rows of the evaluation table. compared: header of their values.
    played: token ids of an example sequence.
    """
    base = config.model.path
    for file in [*base.glob("LICENSE*"), *base.glob("*TERMS*")]:
        if file.is_file():
            shutil.copy(file, folder)
    example = ""
    if played:
        text = Tokenizer.from_file(str(folder / "tokenizer.json")).decode(played, skip_special_tokens=False)
        example = text if len(text) <= _EXAMPLE_CHARACTERS else f"{text[:_EXAMPLE_CHARACTERS]} …"
    fence = "`" * 3
    while fence in example:
        fence += "`"
    recipe = json.loads(json.dumps(config.model_dump(exclude=_NOT_IN_CARD), default=lambda path: path.name))
    card = _CARD.render(
        title=title,
        license=_license(base),
        tags=["reinforcement-learning", config.project],
        base=base.name,
        dtype=config.model.dtype,
        lora_rank=config.model.lora_rank,
        data=data,
        results=list(results),
        compared=compared,
        example=example,
        fence=fence,
        temperature=config.rollout.temperature,
        recipe=yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True),
    )
    (folder / CARD).write_text(card, encoding="utf-8")


def _license(model: Path) -> str | None:
    """The licence in the front matter of a model's card, or None."""
    try:
        _, front_matter, _ = (model / CARD).read_text(encoding="utf-8").split("---", 2)
        return yaml.safe_load(front_matter).get("license")
    except (OSError, ValueError, AttributeError, yaml.YAMLError):  # foreign content
        return None
