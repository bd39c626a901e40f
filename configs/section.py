"""The base class of the configuration's sections."""

import difflib
from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict


class ConfigError(ValueError):
    """A configuration that cannot be used; the message names the file, the key and the remedy."""


class Section(BaseModel):
    """A group of settings. Unknown keys are rejected."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def nearest_name(name: str, valid: Iterable[str], kind: str = "names") -> str:
    """A hint for a name that is not in ``valid``: the nearest valid name, or all."""
    valid = [str(each) for each in valid]
    nearest = difflib.get_close_matches(name, valid, n=1)
    return f"did you mean {nearest[0]!r}?" if nearest else f"valid {kind}: {', '.join(valid)}"
