"""The base class of the configuration's sections."""

import difflib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator


class ConfigError(ValueError):
    """A configuration that cannot be used; the message names the file, the key and the remedy."""


class Section(BaseModel):
    """A group of settings. Unknown keys are rejected."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _as_meant(cls, value: Any, info: ValidationInfo) -> Any:
        """Expand ``~`` in paths, which a shell leaves in ``--set run.dir=~/runs``; true is no number."""
        annotation = cls.model_fields[info.field_name or ""].annotation
        kinds = (annotation, *get_args(annotation))
        if isinstance(value, bool) and bool not in kinds:
            raise ValueError("must not be true or false")
        return os.path.expanduser(value) if isinstance(value, str) and Path in kinds else value


def nearest_name(name: str, valid: Iterable[str], kind: str = "names") -> str:
    """A hint for a name that is not in ``valid``: the nearest valid name, or all."""
    valid = [str(each) for each in valid]
    nearest = difflib.get_close_matches(name, valid, n=1)
    return f"did you mean {nearest[0]!r}?" if nearest else f"valid {kind}: {', '.join(valid)}"
