"""Whether stored games were played with the tokenizer of a model: else their token ids would mean something else."""

from collections.abc import Sequence
from pathlib import Path

from transformers import AutoTokenizer

from algo.rollouts.triplets import FinishedRollout
from configs.section import ConfigError

_SAMPLE = 100


def check_tokenizer(games: Sequence[FinishedRollout], model: Path) -> None:
    """Raise ConfigError if the tokenizer in the folder ``model`` reads the stored replies otherwise than was recorded.

    Replies may hold control tokens that their recorded text lacks, so that single ones may differ; not most of them.
    """
    tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True)
    replies = [triplet for game in games for triplet in game.triplets if triplet.metadata["trainable"]][:_SAMPLE]
    agreeing = sum(
        triplet.metadata["reply"] in tokenizer.decode(triplet.response["token_ids"], skip_special_tokens=True)
        for triplet in replies
    )
    if agreeing < len(replies) / 2:
        raise ConfigError(
            f"the games were played with another tokenizer than that of model.path {model}: only {agreeing} of "
            f"{len(replies)} replies read as they were recorded; set model.path to a model with that run's tokenizer"
        )
