"""Health check of a runner. Exits with 0 after a recent heartbeat at the hub, else with 1.

A runner has no port, but sends the hub a heartbeat every ten seconds. It counts as alive while the hub does not answer:
it waits for the hub and exits after its own timeout.

Run by path, standard library only, because a health check runs often:
``python runner_health.py --store URL NAME``, where NAME is the runner's ``--worker-id``. With ``--processes`` the
processes are NAME-1, NAME-2, …, and the runner is alive while any of them is; their supervisor restarts the others. The
hub token comes from ``AGL_TOKEN`` or the file that ``AGL_TOKEN_FILE`` names.
"""

import argparse
import http.client
import json
import os
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from pathlib import Path

_REQUEST_SECONDS = 5.0


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """urllib would send the token to the other address."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the finding; returns the exit status."""
    options = parse_arguments(arguments)
    query = urllib.parse.urlencode({"worker_id_contains": options.worker_id})
    url = f"{options.store.rstrip('/')}/v1/agl/workers?{query}"
    token = _token()
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=_REQUEST_SECONDS) as response:
            workers = json.load(response)["items"]
            now = parsedate_to_datetime(response.headers["Date"]).timestamp()
    except urllib.error.HTTPError as error:
        print(f"{options.store} answers {error.code} {error.reason} to the query for {options.worker_id}")
        return 0 if error.code in (404, 408, 429) or error.code >= 500 else 1  # of a proxy, while the hub is away
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError) as error:
        # Unreachable, ended within its answer, or another server that answers in its place.
        print(f"no hub answers at {options.store}, so the state of {options.worker_id} is unknown: {error}")
        return 0
    own_name = re.compile(re.escape(options.worker_id) + r"(-\d+)?")
    its_processes = [worker for worker in workers if own_name.fullmatch(worker["worker_id"])]
    heard = max((worker["last_heartbeat_time"] or 0.0 for worker in its_processes), default=0.0)
    if not heard:
        print(f"the hub has no heartbeat of {options.worker_id}")
        return 1
    print(f"last heartbeat of {options.worker_id} {max(now - heard, 0):.0f} s ago")
    return 0 if now - heard <= options.within else 1


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; exits with a usage message when it cannot be used."""
    parser = argparse.ArgumentParser(
        "runner_health.py", description="Whether the hub has a recent heartbeat of a runner."
    )
    parser.add_argument("--store", default="http://127.0.0.1:4747", metavar="URL", help="address of the hub")
    parser.add_argument(
        "--within", type=float, default=60.0, metavar="SECONDS", help="largest age of the last heartbeat (%(default)g)"
    )
    parser.add_argument("worker_id", metavar="NAME", help="the runner's --worker-id")
    return parser.parse_args(arguments)


def _token() -> str:
    token = os.environ.get("AGL_TOKEN", "").strip()
    file = os.environ.get("AGL_TOKEN_FILE", "").strip()
    return Path(file).read_text().strip() if file and not token else token


if __name__ == "__main__":
    sys.exit(main())
