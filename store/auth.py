"""The hub token: one shared secret of the hub and its clients, sent as ``Authorization: Bearer``."""

import logging
import os
import stat
from pathlib import Path

from store.errors import OneLineError

logger = logging.getLogger(__name__)

TOKEN_VARIABLE = "AGL_TOKEN"
"""Environment variable from which hub, runners, algorithm and ``status`` read the token."""

TOKEN_FILE_VARIABLE = "AGL_TOKEN_FILE"
"""Environment variable with the name of a file that holds the token, so that no environment contains it."""

_OTHERS_MAY_READ = stat.S_IRGRP | stat.S_IROTH


class UnusableToken(OneLineError, ValueError):
    """The token cannot be read or sent; the message does not contain it."""


def read_token(token_file: Path | None = None) -> str | None:
    """The token in the file, else in ``AGL_TOKEN``, else in the file that ``AGL_TOKEN_FILE`` names; None without any.

    Raises UnusableToken, also for an empty one: a lost secret must not disable authentication.
    """
    if token_file is None:
        if (token := os.environ.get(TOKEN_VARIABLE)) is not None:
            return check_token(token.strip(), TOKEN_VARIABLE)
        if (named := os.environ.get(TOKEN_FILE_VARIABLE)) is None:
            return None
        if not named.strip():
            raise UnusableToken(f"{TOKEN_FILE_VARIABLE} is set but empty: name a file, or unset it")
        token_file = Path(named.strip())
    try:
        if token_file.stat().st_mode & _OTHERS_MAY_READ:
            logger.warning("other users can read the token in %s: run `chmod 600 %s`", token_file, token_file)
        token = token_file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UnusableToken(f"cannot read the token file {token_file}: {reason}") from None
    return check_token(token, f"the token file {token_file}")


def check_token(token: str, source: str) -> str:
    """The token, if it is valid in a header: visible ASCII characters without blanks. Raises UnusableToken."""
    if not token:
        raise UnusableToken(f"{source} is empty: put the hub token there, or unset it")
    if not all("!" <= character <= "~" for character in token):
        raise UnusableToken(f"{source} must be one line of visible ASCII characters without blanks")
    return token
