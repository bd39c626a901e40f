"""``python -m algo.find_best_prompt``: which of several prompts is best, for any agent or for the game.

Prompts race on the same tasks, a model may edit the one that is ahead, and the winner is called better than the first
prompt only where it was on tasks that no race has seen (``algo.prompt_search.search``). Everything goes through the
hub: start runners of the agent (``python -m runners.agents``) or of the game (``python -m runners.werewolf``), or give
``--local``.

Exit status: 0 when the search came to its end, whether or not a better prompt was found; 2 for a command line or
prompts that cannot be used; 130 when stopped; 1 for all else. ``--resume auto`` goes on after any end.
"""

import argparse
import os
import sys
from pathlib import Path

from algo.prompt_search.plan import SearchPlan, check_players, read_halves, sides_of
from algo.prompt_search.prompts import Slots, Tree, agent_prompts, game_prompts
from algo.run.local import add_local_option, run_locally
from configs.command_line import configured_parser, read_configuration
from configs.loading import CONFIG_DIR
from configs.model_folder import check_model_folder
from configs.schema import Config
from configs.werewolf import WerewolfConfig


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; exits with a usage message when it cannot be used."""
    parser = configured_parser(
        "algo.find_best_prompt",
        "Find the best of several prompts: of an agent (--tasks), or of the game (without).",
        example="store.url=http://hub:4747",
        resume="go on with the search of this run.name",
    )
    parser.add_argument(
        "--prompts",
        type=Path,
        required=True,
        metavar="PATH",
        help="an agent's: a file with a prompt a line, or with lines --- between them, or a folder of .txt files; the "
        "first is the baseline. The game's: a folder with wolf/*.txt, seer/*.txt, system/*.txt …; a file wolf.txt "
        "next to wolf/ is its baseline, or else what is built in",
    )
    search = parser.add_argument_group("the search")
    search.add_argument("--budget", type=int, default=400, help="rollouts in all (default: %(default)s)")
    search.add_argument(
        "--disjoint-intervals",
        action="store_true",
        help="call a winner better only where its interval and the first prompt's do not touch, besides that of their "
        "difference leaving out zero",
    )
    add_local_option(parser, "rollouts")
    agent = parser.add_argument_group("an agent's prompt")
    agent.add_argument("--tasks", type=Path, metavar="FILE", help="the agent's inputs, one JSON value a line")
    agent.add_argument(
        "--held-out", type=float, default=0.5, metavar="SHARE", help="of the tasks, to confirm (default: %(default)s)"
    )
    agent.add_argument(
        "--reward-range", type=float, nargs=2, default=(0.0, 1.0), metavar=("LOW", "HIGH"), help="default: 0 1"
    )
    agent.add_argument("--agent", metavar="MODULE:NAME", help="with --local: what its runner plays the tasks with")
    agent.add_argument("--endpoint", default="", metavar="URL", help="vLLM server for agents that ask for the policy")
    agent.add_argument("--model", default="", help="its model's name there")
    game = parser.add_argument_group("the game's prompts")
    game.add_argument("--player", default="policy", help="the player with the searched prompts (default: %(default)s)")
    game.add_argument("--opponent", default="scripted", help="who plays the other side (default: %(default)s)")
    proposer = parser.add_argument_group("a model that edits prompts")
    proposer.add_argument("--proposer-url", metavar="URL", help="any OpenAI-compatible endpoint, ending in /v1")
    proposer.add_argument("--proposer-model", metavar="NAME", help="the model's name there")
    proposer.add_argument("--proposer-key-env", metavar="VARIABLE", help="environment variable that holds its key")
    proposer.add_argument("--proposer-calls", type=int, default=24, help="at most (default: %(default)s)")
    proposer.add_argument("--proposer-tokens", type=int, default=200_000, help="at most (default: %(default)s)")
    proposer.add_argument("--generations", type=int, default=2, help="rounds of edits (default: %(default)s)")
    proposer.add_argument("--edits", type=int, default=3, help="of a round (default: %(default)s)")
    options = parser.parse_args(arguments)
    if bool(options.proposer_url) != bool(options.proposer_model):
        parser.error("--proposer-url, --proposer-model: both or neither")
    if bool(options.endpoint) != bool(options.model):
        parser.error("--endpoint and --model: both or neither")
    if options.proposer_key_env and not os.environ.get(options.proposer_key_env):
        parser.error(f"--proposer-key-env: {options.proposer_key_env} is not set")
    if options.local and bool(options.tasks) != bool(options.agent):
        parser.error("--local: name what plays an agent's --tasks with --agent; the game has its own runner")
    return options


def main() -> int:
    """Entry point."""
    options = parse_arguments()
    if options.tasks and options.config is None:
        options.config = CONFIG_DIR / "find_best_prompt.yaml"
    generations = options.generations if options.proposer_url else 0
    plan = SearchPlan(options.budget, options.disjoint_intervals, generations, options.edits)
    found: list[tuple[Slots, Tree]] = []

    def check(config: Config) -> None:
        rollouts_of_task = 1
        if isinstance(config, WerewolfConfig):
            slots, tree = game_prompts(options.prompts, config, bool(options.proposer_url))
            check_players(options.player, options.opponent, slots)
            rollouts_of_task = len(sides_of(slots))
            if options.player == "policy" and config.serving.mode == "start":
                check_model_folder(config.model.path)
        else:
            slots, tree = agent_prompts(options.prompts)
            read_halves(options.tasks, options.held_out, config.run.seed)
        plan.check(slots, tree, rollouts_of_task)
        found.append((slots, tree))

    config = read_configuration(options, Config if options.tasks else WerewolfConfig, check)
    if isinstance(config, int):
        return config
    suffix = "" if options.tasks else "-prompts"
    if options.local:
        workload = ("agents", "--agent", options.agent) if options.tasks else ("werewolf",)
        return run_locally("algo.find_best_prompt", config, options, suffix, *workload)
    # These take seconds to import.
    from algo.prompt_search.run import run

    return run(config, options, plan, *found[0], suffix)


if __name__ == "__main__":
    sys.exit(main())
