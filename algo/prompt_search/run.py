"""Runs a search that the command line asks for, from its folder to what is shown in the end."""

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

from algo.agents.data import read_tasks
from algo.evaluation.players import serve_players
from algo.prompt_search.agent_tasks import AgentTasks
from algo.prompt_search.arena import Arena, Workload
from algo.prompt_search.candidates import Slot, Tree
from algo.prompt_search.game_tasks import GameTasks, check_players, sides_of
from algo.prompt_search.inputs import split
from algo.prompt_search.journal import Journal
from algo.prompt_search.plan import ProposerBounds, SearchPlan
from algo.prompt_search.proposer import Proposer, ProposerUnavailable
from algo.prompt_search.results import PAGE_NAME, show_results, write_results, write_tree
from algo.prompt_search.search import Findings, Search, check_search
from algo.reports.terminal import wide_console
from algo.rollouts.queue import RolloutQueue
from algo.rollouts.resources import UnservedPolicy, policy_resources
from algo.run.command_line import begin_run, run_to_its_end
from algo.run.folder import OpenedRun, cancel_on_signals
from configs.schema import Config
from store.agents import AGENTS
from store.client import connect
from store.schema import TokenLimits

logger = logging.getLogger("algo.find_best_prompt")

_ANY_PROMPT = sys.maxsize


def run(config: Config, options: argparse.Namespace, slots: dict[str, Slot], tree: Tree, suffix: str) -> int:
    """Search and show what was found; returns the exit status. slots, tree: of ``inputs``. suffix: see ``open_run``."""
    opened = begin_run(
        config,
        options.log_level,
        suffix=suffix,
        log="find_best_prompt.log",
        resume=options.resume == "auto",
    )
    if isinstance(opened, int):
        return opened
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
    console = wide_console()
    show_results(tree, findings, console)
    if options.tasks:
        # The folder and not the file, whose lines would be taken for a prompt each.
        told = sorted({f"--prompts {file.parent}" for file in files.values()})
    else:
        told = [f"--set game.prompts.{slot}={file}" for slot, file in files.items()]
    lines = "\n".join([*told, str(opened.config.run_dir / PAGE_NAME)])
    console.print(lines, highlight=False, markup=False, soft_wrap=True)
    return 0


async def find_best_prompt(
    opened: OpenedRun, options: argparse.Namespace, slots: dict[str, Slot], tree: Tree
) -> tuple[Findings, dict[str, Path]]:
    """Search, and write what was found into the run's folder. Returns it with the files of the prompts to use.

    Raises ConfigError, ProposerUnavailable, StoreUnreachable, ServingError and NothingFinished.
    """
    plan = plan_of(options)
    varied = tuple(slots)
    if not options.tasks:
        check_players(options.player, options.opponent, varied)
    check_search(
        plan,
        slots,
        tree,
        bool(options.proposer_url),
        lambda slot: 1 if options.tasks else len(sides_of(slot, varied)),
    )
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
        try:
            findings = await search.run()
        finally:
            write_tree(folder, tree)
    return findings, write_results(folder, opened.config.run.name, plan, tree, findings)


@asynccontextmanager
async def agent_arena(
    opened: OpenedRun, options: argparse.Namespace
) -> AsyncIterator[tuple[Workload, RolloutQueue, Callable[[], Awaitable[object]]]]:
    """An agent's tasks through the hub; what its model is stays the agent's affair unless --endpoint names one."""
    config = opened.config
    searched, held_out = split(read_tasks(options.tasks, "--tasks"), options.held_out, config.run.seed)
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
    async with serve_players(opened, [options.player, options.opponent], None) as served:
        workload = GameTasks(opened.config, options.player, options.opponent, served.resources, tuple(slots))
        yield workload, served.games, served.check_alive


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
