"""Addresses of servers."""

import ipaddress
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """host: an address to listen on, or the name in a ``Host`` header without its port."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def problem_with_base_url(url: str) -> str | None:
    """What an address must be to be the base of requests; None if it is. It is not quoted: it may have a password."""
    try:
        parts = urlsplit(url)
        is_valid = parts.port != 0
    except ValueError:  # its text quotes the address
        is_valid = False
    if not is_valid:
        return "must be a URL with a host, and a port between 1 and 65535"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "must start with http:// or https:// and have a host"
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        return "must have no user, password, query or fragment"
    return None


def leads_to_loopback(url: str) -> bool:
    """Whether a URL has a loopback host."""
    return is_loopback(urlsplit(url).hostname or "")
