"""``python -m algo.find_best_prompt``: find the best of several prompts, for any agent or for the game.

Prompts race on the same tasks, a model may edit the leading one, and the winner is reported as better than the first
prompt only if it is better on held-out tasks (``algo.prompt_search.search``). Rollouts go through the hub: start
runners of the agent (``python -m runners.agents``) or of the game (``python -m runners.werewolf``), or use ``--local``.

Exit status: 0 for a finished search, with or without a better prompt; 2 for an invalid command line or invalid prompts;
130 when stopped; 1 for other errors. ``--resume auto`` continues a search.
"""

import argparse
import math
import os
from pathlib import Path

from algo.prompt_search.plan import SearchPlan, check_players, read_halves, sides_of
from algo.prompt_search.prompts import Slots, Tree, agent_prompts, game_prompts
from algo.run.local import add_local_option, run_locally
from configs.command_line import configured_parser, read_configuration
from configs.loading import CONFIG_DIR
from configs.model_folder import check_model_folder
from configs.schema import Config
from configs.werewolf import WerewolfConfig
from store.endpoints import problem_with_endpoint
from store.program import number, run_program


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; exits with a usage message for an invalid one."""
    parser = configured_parser(
        "algo.find_best_prompt",
        "Find the best of several prompts: of an agent (--tasks), or of the game (without).",
        example="store.url=http://hub:4747",
        default="tiny_cpu; with --tasks: find_best_prompt",
        resume="continue the search of this run.name",
    )
    parser.add_argument(
        "--prompts",
        type=Path,
        required=True,
        metavar="PATH",
        help="for an agent: a file with one prompt per line, or separated by lines ---, or a folder of .txt files; the "
        "first is the baseline. For the game: a folder with wolf/*.txt, seer/*.txt, system/*.txt …; the baseline is a "
        "file wolf.txt next to wolf/, else the configuration's prompt, else the built-in one",
    )
    search = parser.add_argument_group("the search")
    search.add_argument("--budget", type=int, default=400, help="total number of rollouts (default: %(default)s)")
    search.add_argument(
        "--disjoint-intervals",
        action="store_true",
        help="confirm a winner only if its interval and the first prompt's are disjoint",
    )
    add_local_option(parser, "rollouts")
    agent = parser.add_argument_group("an agent's prompt")
    agent.add_argument("--tasks", type=Path, metavar="FILE", help="the agent's inputs, one JSON value a line")
    agent.add_argument(
        "--held-out",
        type=number(float, 0, 1),
        default=0.5,
        metavar="SHARE",
        help="share of the tasks held out for the final comparison (default: %(default)s)",
    )
    agent.add_argument(
        "--reward-range",
        type=float,
        nargs=2,
        default=(0.0, 1.0),
        metavar=("LOW", "HIGH"),
        help="bounds of the reward; a failed attempt earns LOW (default: 0 1)",
    )
    agent.add_argument(
        "--max-calls",
        type=number(int, 1),
        default=64,
        metavar="N",
        help="model calls of one attempt; further ones are rejected (default: %(default)s)",
    )
    agent.add_argument("--agent", metavar="MODULE:NAME", help="with --local: the agent of the runner")
    agent.add_argument(
        "--endpoint", default="", metavar="URL", help="vLLM server for agents that use the policy, ending in /v1"
    )
    agent.add_argument("--model", default="", help="the model's name at --endpoint")
    game = parser.add_argument_group("the game's prompts")
    game.add_argument("--player", default="policy", help="the player with the searched prompts (default: %(default)s)")
    game.add_argument("--opponent", default="scripted", help="player of the other side (default: %(default)s)")
    proposer = parser.add_argument_group("a model that edits prompts")
    proposer.add_argument("--proposer-url", metavar="URL", help="any OpenAI-compatible endpoint, ending in /v1")
    proposer.add_argument("--proposer-model", metavar="NAME", help="the model's name at --proposer-url")
    proposer.add_argument("--proposer-key-env", metavar="VARIABLE", help="environment variable that holds its key")
    text = "maximal calls of that model (default: %(default)s)"
    proposer.add_argument("--proposer-calls", type=int, default=24, help=text)
    text = "total prompt and reply tokens of that model (default: %(default)s)"
    proposer.add_argument("--proposer-tokens", type=int, default=200_000, help=text)
    proposer.add_argument("--generations", type=int, default=2, help="rounds of edits (default: %(default)s)")
    proposer.add_argument("--edits", type=int, default=3, help="edits per round (default: %(default)s)")
    options = parser.parse_args(arguments)
    if bool(options.proposer_url) != bool(options.proposer_model):
        parser.error("--proposer-url and --proposer-model must be given together")
    low, high = options.reward_range
    if not (low < high and math.isfinite(high - low)):
        parser.error("--reward-range: LOW must be below HIGH, both finite")
    if options.generations < 1 or options.edits < 1:
        parser.error("--generations and --edits must be at least 1")
    if bool(options.endpoint) != bool(options.model):
        parser.error("--endpoint and --model must be given together")
    for name in ("--proposer-url", "--endpoint"):
        url = getattr(options, name.removeprefix("--").replace("-", "_"))
        if url and (problem := problem_with_endpoint(url)):
            parser.error(f"{name} {problem}")
    if name := options.proposer_key_env:
        key = os.environ.get(name, "").strip()
        if not (key and key.isascii() and key.isprintable()):
            parser.error(f"--proposer-key-env: {name} {'has invalid characters' if key else 'is not set'}")
    if options.agent and not options.local:
        parser.error("--agent needs --local: without it, runners are started by `python -m runners.agents`")
    if options.local and bool(options.tasks) != bool(options.agent):
        parser.error("--local: give --tasks and --agent together, or neither for the game")
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
            check_players(options.player, options.opponent, slots, [*config.players, *config.frozen])
            rollouts_of_task = len(sides_of(slots))
            if "policy" in (options.player, options.opponent) and config.serving.mode == "start":
                check_model_folder(config.model.path)
        else:
            slots, tree = agent_prompts(options.prompts)
            read_halves(options.tasks, options.held_out, config.run.seed)
        plan.check(slots, tree, rollouts_of_task)
        found.append((slots, tree))

    config = read_configuration(options, Config if options.tasks else WerewolfConfig, check)
    suffix = "" if options.tasks else "-prompts"
    if options.local:
        endpoint = ("--allow-address", options.endpoint) if options.endpoint else ()
        workload = ("agents", "--agent", options.agent, *endpoint) if options.tasks else ("werewolf",)
        return run_locally("algo.find_best_prompt", config, options, suffix, *workload)
    # These take seconds to import.
    from algo.prompt_search.run import run

    return run(config, options, plan, *found[0], suffix)


if __name__ == "__main__":
    run_program(main)
