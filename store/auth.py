"""One shared secret between the hub and those who may use it, sent as ``Authorization: Bearer``."""

import logging
import os
import stat
from pathlib import Path

from store.errors import OneLineError

logger = logging.getLogger(__name__)

TOKEN_VARIABLE = "AGL_TOKEN"
"""Name of the environment variable that hub, runners, algorithm and ``status`` take the token from."""

TOKEN_FILE_VARIABLE = "AGL_TOKEN_FILE"
"""Name of the one that names a file with the token instead, so that no process has it in its environment."""

_OTHERS_MAY_READ = stat.S_IRGRP | stat.S_IROTH


class UnusableToken(OneLineError, ValueError):
    """The token cannot be read or sent; the message does not contain it."""


def read_token(token_file: Path | None = None) -> str | None:
    """The token in the file, else the one in ``AGL_TOKEN``, else the one in the file that ``AGL_TOKEN_FILE`` names.

    None where none of them is given. Raises UnusableToken, also where one is given and empty: a secret that did not
    arrive must not open a hub to everybody.
    """
    if token_file is None:
        if (token := os.environ.get(TOKEN_VARIABLE)) is not None:
            return check_token(token.strip(), TOKEN_VARIABLE)
        if (named := os.environ.get(TOKEN_FILE_VARIABLE)) is None:
            return None
        if not named.strip():
            raise UnusableToken(f"{TOKEN_FILE_VARIABLE} is set, but empty: name a file, or unset it")
        token_file = Path(named.strip())
    try:
        if token_file.stat().st_mode & _OTHERS_MAY_READ:
            logger.warning("others on this machine may read the token in %s; `chmod 600` it", token_file)
        token = token_file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UnusableToken(f"cannot read the token file {token_file}: {reason}") from None
    return check_token(token, f"the token file {token_file}")


def check_token(token: str, source: str) -> str:
    """The token, if it can stand in a header: visible ASCII characters without blanks. Raises UnusableToken."""
    if not token:
        raise UnusableToken(f"{source} is given, but empty: put the hub's token there, or unset it")
    if not all("!" <= character <= "~" for character in token):
        raise UnusableToken(f"{source} must hold one line of visible ASCII characters without blanks")
    return token
