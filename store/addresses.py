"""Loopback addresses."""

import ipaddress
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """host: an address to listen on, or the name in a ``Host`` header without its port."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def leads_to_loopback(url: str) -> bool:
    """Whether a URL has a loopback host."""
    return is_loopback(urlsplit(url).hostname or "")
