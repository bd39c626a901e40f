"""``python -m runners.agents``: take agents' tasks from the hub and let an agent do them.

The agent is a function or object of agentlightning's (``--agent my.module:agent``), or an HTTP service on this machine
(``--service http://127.0.0.1:9000/chat --reward my.module:reward``). It needs no change but the address of its model:
what it asks there is sampled by the policy's servers, token by token, and stored as what the algorithm trains on.

Needs no GPU and no torch. Start as many as you like, before or after the hub and the algorithm. Ctrl-C (or SIGTERM)
finishes the tasks under way; a second one hands them back at once, and so does SIGHUP.

Exit status: 0; 2 for a command line that cannot be used; 69 (``EX_UNAVAILABLE``) when the hub stayed away or refused
us; 130 when stopped before the hub had answered.
"""

import argparse
import asyncio
import logging
import sys

from runners.command_line import add_worker_options, log_to_terminal, run_fleet, run_worker, seconds
from runners.processes import EXIT_INTERRUPTED


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; exits with a usage message when it cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m runners.agents",
        description="Take tasks from the hub, let an agent do them with the policy as its model, store a span a call.",
    )
    agent = parser.add_mutually_exclusive_group(required=True)
    agent.add_argument(
        "--agent",
        metavar="MODULE:NAME",
        help="an agentlightning @rollout function or LitAgent, found from the folder that you are in",
    )
    agent.add_argument("--service", metavar="URL", help="an HTTP service on this machine that takes a task by POST")
    parser.add_argument(
        "--reward",
        metavar="MODULE:NAME",
        help="a function of the task and the service's answer that gives the reward; by default the answer has it "
        "under `reward`",
    )
    parser.add_argument(
        "--service-timeout",
        type=seconds,
        default=60.0,
        metavar="SECONDS",
        help="how long to wait for a service that refuses connections (default: %(default)g)",
    )
    add_worker_options(parser, "tasks")
    options = parser.parse_args(arguments)
    if options.reward and not options.service:
        parser.error("--reward: only with --service; an agent gives its reward itself")
    return options


def open_play(options: argparse.Namespace, client):
    """What plays the tasks. ValueError names an agent, a function or an address that cannot be used."""
    from runners.addresses import Addresses
    from runners.agents.agent_play import AgentPlay, load
    from runners.agents.service import ServicePlayer

    if options.agent:
        from runners.agents.lit import LitPlayer, load_agent  # brings agentlightning along

        player = LitPlayer(load_agent(options.agent))
    else:
        reward = load(options.reward) if options.reward else None
        player = ServicePlayer(options.service, reward, options.service_timeout)
    return AgentPlay(
        client,
        player,
        policy_timeout_seconds=options.policy_timeout,
        addresses=Addresses(options.store, options.allow_address),
    )


def main() -> int:
    """Entry point."""
    options = parse_arguments()
    log_to_terminal(options)
    logging.getLogger("agentlightning.litagent").setLevel(logging.ERROR)  # it warns of several LLMs at every rollout
    if options.processes > 1:
        return run_fleet("runners.agents", options)
    try:
        return asyncio.run(run_worker(options, lambda client: open_play(options, client)))
    except KeyboardInterrupt:  # before the worker was ready to take it
        return EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
