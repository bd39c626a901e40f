"""``python -m algo.find_best_prompt``: which of several prompts is best, for any agent or for the game.

Prompts race on the same tasks, a model may edit the one that is ahead, and the winner is called better than the first
prompt only after it was on tasks that no race has seen (``algo.prompt_search.racing``). Everything goes through the
hub: start runners for the agent (``python -m runners.agents``) or the game (``python -m runners.werewolf``) beside it.

Exit status: 0 when the search came to its end, whether or not a better prompt was found; 2 for a command line or
prompts that cannot be used; 130 when stopped; 1 for all else. ``--resume auto`` goes on after any end.
"""

import argparse
import hashlib
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from algo.loop.command_line import add_configuration_options, begin_run, run_to_its_end
from algo.loop.run_folder import OpenedRun, UnservedPolicy, cancel_on_signals, policy_resources
from algo.prompt_search.agent_tasks import SLOT, AgentTasks, read_tasks, split
from algo.prompt_search.arena import Arena, Workload
from algo.prompt_search.candidates import Slot, Tree, check_prompts, format_names, read_prompts
from algo.prompt_search.journal import Journal
from algo.prompt_search.proposer import Proposer, ProposerBounds, ProposerUnavailable
from algo.prompt_search.results import PAGE_NAME, show_results, write_results, write_tree
from algo.prompt_search.search import Findings, Search, SearchPlan
from algo.rollouts.queue import RolloutQueue
from configs.loading import CONFIG_DIR
from configs.schema import Config
from configs.section import ConfigError
from configs.werewolf import WerewolfConfig
from store.agents import AGENTS
from store.client import connect
from store.schema import TRAINED_POLICY, TokenLimits

logger = logging.getLogger("algo.find_best_prompt")

_ANY_PROMPT = sys.maxsize


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; exits with a usage message when it cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m algo.find_best_prompt",
        description="Find the best of several prompts: of an agent (--tasks), or of the game (without).",
    )
    parser.add_argument(
        "--prompts",
        type=Path,
        required=True,
        metavar="PATH",
        help="an agent's: a file with a prompt a line, or with lines --- between them, or a folder of .txt files; the "
        "first is the one to beat. The game's: a folder with wolf/*.txt, seer/*.txt, system/*.txt …; a file wolf.txt "
        "beside wolf/ is the text to beat (default: what is built in)",
    )
    add_configuration_options(parser, example="store.url=http://hub:4747")
    search = parser.add_argument_group("the search")
    defaults = SearchPlan(budget=400)
    search.add_argument("--budget", type=int, default=defaults.budget, help="rollouts in all (default: %(default)s)")
    search.add_argument(
        "--until-apart",
        action="store_true",
        help="confirm a winner until its interval and the first prompt's "
        "do not touch, instead of until their difference leaves out zero",
    )
    search.add_argument(
        "--resume",
        choices=["never", "auto"],
        default="never",
        help="auto: go on with the search of this run.name; never (default): begin one",
    )
    agent = parser.add_argument_group("an agent's prompt")
    agent.add_argument("--tasks", type=Path, metavar="FILE", help="the agent's inputs, one JSON value a line")
    agent.add_argument(
        "--held-out", type=float, default=0.5, metavar="SHARE", help="of the tasks, to confirm (default: %(default)s)"
    )
    agent.add_argument(
        "--reward-range", type=float, nargs=2, default=(0.0, 1.0), metavar=("LOW", "HIGH"), help="default: 0 1"
    )
    agent.add_argument("--endpoint", default="", metavar="URL", help="vLLM server for agents that ask for the policy")
    agent.add_argument("--model", default="", help="its model's name there")
    game = parser.add_argument_group("the game's prompts")
    game.add_argument("--player", default=TRAINED_POLICY, help="whose prompts are searched (default: %(default)s)")
    game.add_argument("--opponent", default="scripted", help="who plays the other side (default: %(default)s)")
    proposer = parser.add_argument_group("a model that edits prompts")
    bounds = ProposerBounds()
    proposer.add_argument("--proposer-url", metavar="URL", help="any OpenAI-compatible endpoint, ending in /v1")
    proposer.add_argument("--proposer-model", metavar="NAME", help="the model's name there")
    proposer.add_argument("--proposer-key-env", metavar="VARIABLE", help="environment variable that holds its key")
    proposer.add_argument("--proposer-calls", type=int, default=bounds.calls, help="at most (default: %(default)s)")
    proposer.add_argument("--proposer-tokens", type=int, default=bounds.tokens, help="at most (default: %(default)s)")
    proposer.add_argument("--generations", type=int, default=defaults.generations, help="default: %(default)s")
    proposer.add_argument("--edits", type=int, default=defaults.edits, help="a generation (default: %(default)s)")
    options = parser.parse_args(arguments)
    if bool(options.proposer_url) != bool(options.proposer_model):
        parser.error("--proposer-url and --proposer-model: both or neither")
    if not options.reward_range[0] < options.reward_range[1]:
        parser.error("--reward-range: LOW must be below HIGH")
    if bool(options.endpoint) != bool(options.model):
        parser.error("--endpoint and --model: both or neither")
    if not 0 < options.held_out < 1:
        parser.error("--held-out: a share between 0 and 1")
    if options.proposer_key_env and not os.environ.get(options.proposer_key_env):
        parser.error(f"--proposer-key-env: {options.proposer_key_env} is not set")
    return options


def agent_prompts(path: Path) -> tuple[dict[str, Slot], Tree]:
    """The prompts of a file; the first one's placeholders are those of all. Raises ConfigError."""
    prompts = read_prompts(path)
    try:
        names = format_names(prompts[0][1])
    except ValueError as error:
        raise ConfigError(f"{prompts[0][0]}: {error}") from error
    slot = Slot(SLOT, names, names, format_names)
    check_prompts(slot, prompts)
    tree = Tree()
    incumbent = tree.add({SLOT: prompts[0][1]}, reason=prompts[0][0])
    for where, text in prompts[1:]:
        tree.add({SLOT: text}, SLOT, incumbent, where)
    return {SLOT: slot}, tree


def game_prompts(folder: Path, config: WerewolfConfig, with_proposer: bool) -> tuple[dict[str, Slot], Tree]:
    """The prompts of a folder of folders. Raises ConfigError."""
    from algo.prompt_search.game_tasks import ALL_SLOTS, game_slot
    from algo.werewolf.resources import read_prompts as configured_prompts

    names = [name for name in ALL_SLOTS if (folder / name).is_dir() or (folder / f"{name}.txt").is_file()]
    if not names:
        raise ConfigError(f"--prompts: {folder} has neither folders nor .txt files named {', '.join(ALL_SLOTS)}")
    slots = {name: game_slot(name, config.game.preset) for name in names}
    first = {name: text for name, text in configured_prompts(config).items() if name in slots}
    rivals = {}
    for name, slot in slots.items():
        if (file := folder / f"{name}.txt").is_file():
            try:
                first[name] = file.read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"--prompts: cannot read {file}: {error}") from error
        rivals[name] = read_prompts(folder / name) if (folder / name).is_dir() else []
        check_prompts(slot, [(str(file), first[name])] if name in first else [])
        check_prompts(slot, rivals[name])
        if with_proposer and name not in first:
            raise ConfigError(
                f"--prompts: the proposer needs a text to edit, and {file} is missing; write what is built in with "
                f"`python -m runners.werewolf.prompts_zh --preset {config.game.preset} --to {folder}`"
            )
    tree = Tree()
    incumbent = tree.add(first, reason="the prompts so far")
    for name, found in rivals.items():
        for where, text in found:
            tree.add(first | {name: text}, name, incumbent, where)
    return slots, tree


@asynccontextmanager
async def agent_arena(
    opened: OpenedRun, options: argparse.Namespace
) -> AsyncIterator[tuple[Workload, RolloutQueue, Callable[[], Awaitable[object]]]]:
    """An agent's tasks through the hub; what its model is stays the agent's affair unless --endpoint names one."""
    config = opened.config
    searched, held_out = split(read_tasks(options.tasks), options.held_out, config.run.seed)
    cancel_on_signals()
    client = connect(config.store.url, config.store.patience_seconds)
    try:
        await client.wait_until_reachable()
        queue = RolloutQueue(client, AGENTS, config.rollout, opened.resumption)
        endpoints = (options.endpoint,) if options.endpoint else ()
        served = UnservedPolicy(options.model or "none", endpoints)
        base = policy_resources(config, served, {}, opened.state.run_id, 0, {})
        limits = TokenLimits(context_tokens=config.rollout.context_tokens, reply_tokens=config.rollout.reply_tokens)
        low, high = options.reward_range
        try:
            yield (
                AgentTasks(searched, held_out, base, limits, config.run.seed, low, high),
                queue,
                client.wait_until_reachable,
            )
        finally:
            await queue.cancel_open()
    finally:
        await client.close()


@asynccontextmanager
async def game_arena(
    opened: OpenedRun, options: argparse.Namespace, slots: dict[str, Slot]
) -> AsyncIterator[tuple[Workload, RolloutQueue, Callable[[], Awaitable[object]]]]:
    """The game through the hub; the policy, if it plays, is served meanwhile."""
    from algo.evaluation.players import serve_players
    from algo.prompt_search.game_tasks import GameTasks

    async with serve_players(opened, [options.player, options.opponent], None) as served:
        workload = GameTasks(opened.config, options.player, options.opponent, served.resources, tuple(slots))
        yield workload, served.games, served.check_alive


async def find_best_prompt(
    opened: OpenedRun, options: argparse.Namespace, slots: dict[str, Slot], tree: Tree
) -> tuple[Findings, dict[str, Path]]:
    """Search, and write what was found into the run's folder. Returns it with the files of the prompts to use.

    Raises ConfigError, ProposerUnavailable, StoreUnreachable, ServingError and NothingFinished.
    """
    plan = plan_of(options)
    folder = opened.config.run_dir
    journal = Journal(folder / "journal.jsonl")
    say = logger.info
    async with AsyncExitStack() as stack:
        stack.callback(journal.close)
        journal.check_plan(_described(options, plan, tree))
        proposer = None
        if options.proposer_url:
            bounds = ProposerBounds(options.proposer_calls, options.proposer_tokens)
            key = os.environ[options.proposer_key_env] if options.proposer_key_env else "none"
            language = "en" if options.tasks else "zh"
            proposer = Proposer(options.proposer_url, options.proposer_model, key, bounds, journal, language, say)
            stack.push_async_callback(proposer.close)
            await proposer.check()
        arena_of = agent_arena(opened, options) if options.tasks else game_arena(opened, options, slots)
        workload, queue, check_alive = await stack.enter_async_context(arena_of)
        arena = Arena(workload, queue, journal, check_alive, say, opened.began_before)
        search = Search(plan, slots, tree, arena, proposer, say)
        search.check()
        try:
            findings = await search.run()
        finally:
            write_tree(folder, tree)
    return findings, write_results(folder, opened.config.run.name, plan, tree, findings)


def plan_of(options: argparse.Namespace) -> SearchPlan:
    """What the command line says of the search itself."""
    return SearchPlan(
        budget=options.budget,
        until_apart=options.until_apart,
        generations=options.generations,
        edits=options.edits,
    )


def _described(options: argparse.Namespace, plan: SearchPlan, tree: Tree) -> dict[str, object]:
    """What the answers in a journal belong to."""
    prompts = json.dumps([dict(one.templates) for one in tree.candidates], ensure_ascii=False, sort_keys=True)
    tasks = options.tasks.read_bytes() if options.tasks else b""
    return asdict(plan) | {
        "prompts": hashlib.blake2b(prompts.encode(), digest_size=8).hexdigest(),
        "tasks": hashlib.blake2b(tasks, digest_size=8).hexdigest(),
        "held_out": options.held_out,
        "player": options.player,
        "opponent": options.opponent,
        "proposer": options.proposer_model,
    }


def main() -> int:
    """Entry point."""
    options = parse_arguments()
    if options.tasks and options.config is None:
        options.config = CONFIG_DIR / "find_best_prompt.yaml"
    found: list[tuple[dict[str, Slot], Tree]] = []

    def check(config: Config) -> None:
        if isinstance(config, WerewolfConfig):
            found.append(game_prompts(options.prompts, config, bool(options.proposer_url)))
        else:
            found.append(agent_prompts(options.prompts))
            split(read_tasks(options.tasks), options.held_out, config.run.seed)

    opened = begin_run(
        options,
        check,
        suffix="" if options.tasks else "-prompts",
        log="find_best_prompt.log",
        resume=options.resume == "auto",
        schema=Config if options.tasks else WerewolfConfig,
    )
    if isinstance(opened, int):
        return opened
    slots, tree = found[0]
    # Versions number prompts here: of no prompt are the weights undone when a search is taken up again.
    opened.state.policy_version = _ANY_PROMPT
    status, done = run_to_its_end(
        find_best_prompt(opened, options, slots, tree),
        opened.config,
        logger,
        "interrupted; what was played is kept, and --resume auto goes on with it",
        {ProposerUnavailable: "{}"},
    )
    if done is None:
        return status
    findings, files = done
    console = Console()
    show_results(tree, findings, console)
    if options.tasks:
        told = [str(file) for file in files.values()]
    else:
        told = [f"--set game.prompts.{slot}={file}" for slot, file in files.items()]
    lines = "\n".join([*told, str(opened.config.run_dir / PAGE_NAME)])
    console.print(lines, highlight=False, markup=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
