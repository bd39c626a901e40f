"""``python -m runners.agents``: run an agent on tasks from the hub.

The agent is an agentlightning function or object (``--agent my.module:agent``), or an HTTP service on this machine
(``--service http://127.0.0.1:9000/chat --reward my.module:reward``). Only the address of its model changes: the
policy's servers sample its replies, and the tokens are stored for training.

Needs no GPU and no torch. Start any number, before or after the hub and the algorithm. Ctrl-C (or SIGTERM) drains; a
second one hands back at once, and so does SIGHUP.

Exit status: 0; 2 for an invalid command line; 69 (``EX_UNAVAILABLE``) if the hub stays unreachable or rejects the
runner; 78 (``EX_CONFIG``) if it cannot play; 130 if stopped before the hub answered.
"""

import argparse
import asyncio

from runners.command_line import add_worker_options, log_to_terminal, run_fleet, run_worker, seconds
from store.program import run_program


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; exits with a usage message if it is invalid."""
    parser = argparse.ArgumentParser(
        prog="python -m runners.agents",
        description="Take tasks from the hub, run an agent on them with the policy as its model, store a span per "
        "call.",
    )
    agent = parser.add_mutually_exclusive_group(required=True)
    agent.add_argument(
        "--agent",
        metavar="MODULE:NAME",
        help="an agentlightning @rollout function or LitAgent, importable from the working folder",
    )
    agent.add_argument("--service", metavar="URL", help="an HTTP service on this machine that receives tasks by POST")
    parser.add_argument(
        "--reward",
        metavar="MODULE:NAME",
        help="a function (task, answer of the service) -> reward; by default the field `reward` of the answer",
    )
    parser.add_argument(
        "--service-timeout",
        type=seconds,
        default=60.0,
        metavar="SECONDS",
        help="how long to retry a service that refuses connections (default: %(default)g)",
    )
    add_worker_options(parser, "tasks")
    options = parser.parse_args(arguments)
    if options.reward and not options.service:
        parser.error("--reward needs --service; an --agent returns its reward itself")
    return options


def open_play(options: argparse.Namespace, client):
    """The ``Play`` for tasks. Raises ValueError for an invalid agent, function or address."""
    from runners.addresses import Addresses
    from runners.agents.agent_play import AgentPlay, load
    from runners.agents.service import ServicePlayer

    if options.agent:
        from runners.agents.lit import LitPlayer, load_agent  # imports agentlightning

        player = LitPlayer(load_agent(options.agent))
    else:
        reward = load(options.reward) if options.reward else None
        if reward is not None and not callable(reward):
            raise ValueError(f"--reward {options.reward} is no function of (task, answer)")
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
    if options.processes > 1:
        return run_fleet("runners.agents", options)
    return asyncio.run(run_worker(options, lambda client: open_play(options, client)))


if __name__ == "__main__":
    run_program(main)
