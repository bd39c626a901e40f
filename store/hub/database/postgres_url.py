"""Addresses of PostgreSQL databases, which may hold a password that nobody should read."""

from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

SCHEMES = ("postgresql://", "postgres://")

EXAMPLE = "postgresql://hub@db.example:5432/games"


class NoPostgresUrl(ValueError):
    """A text is no address of a PostgreSQL database; the message does not repeat it, since it may hold a password."""


@dataclass(frozen=True)
class PostgresUrl:
    """The address of a database. As text it is without password and options.

    dsn: as it was given, for the driver only.
    """

    dsn: str = field(repr=False)

    def __post_init__(self):
        rest = self.dsn.partition("://")[2]
        try:
            parts = urlsplit(self.dsn)
            place = parts.netloc.rpartition("@")[2]
            ports = [host.rpartition(":")[2] for host in place.split(",") if ":" in host.rpartition("]")[2]]
        except ValueError:
            raise _unreadable() from None
        astray = "@" in rest[len(parts.netloc) :] or parts.fragment
        if (
            not self.dsn.startswith(SCHEMES)
            or astray
            or not all(port.isdecimal() and int(port) < 2**16 for port in ports)
        ):
            raise _unreadable()

    @property
    def user(self) -> str | None:
        """Who connects, if the address says so."""
        before = urlsplit(self.dsn).netloc.rpartition("@")[0].partition(":")[0]
        return unquote(before) or None

    def __str__(self) -> str:
        parts = urlsplit(self.dsn)
        user = parts.netloc.rpartition("@")[0].partition(":")[0]
        return f"postgresql://{user}{'@' if user else ''}{parts.netloc.rpartition('@')[2]}{parts.path}"


def _unreadable() -> NoPostgresUrl:
    return NoPostgresUrl(
        f"not the address of a PostgreSQL database, such as {EXAMPLE}; are special characters of a password escaped, "
        "as in %40 for @? Better leave it out: PGPASSWORD or a password file (PGPASSFILE, ~/.pgpass) is read, too"
    )
