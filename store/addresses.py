"""Which addresses are this machine alone, where nobody else listens in and nobody else can reach."""

import ipaddress
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Whether an address to listen on, or a name in a ``Host`` header without its port, is this machine alone."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def leads_to_loopback(url: str) -> bool:
    """Whether a URL names this machine alone."""
    return is_loopback(urlsplit(url).hostname or "")
