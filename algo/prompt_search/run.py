"""Runs a search from its folder to what is shown in the end."""

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

from algo.evaluation.page import wide_console
from algo.evaluation.players import serve_players
from algo.prompt_search.arena import Arena, Journal
from algo.prompt_search.plan import SearchPlan, read_halves
from algo.prompt_search.prompts import Slots, Tree
from algo.prompt_search.proposer import Proposer, ProposerUnavailable
from algo.prompt_search.results import PAGE_NAME, write_results, write_tree
from algo.prompt_search.search import Findings, Search
from algo.prompt_search.tasks import AgentTasks, GameTasks, Workload
from algo.rollouts.queue import RolloutQueue
from algo.rollouts.resources import policy_resources
from algo.run.command_line import begin_run, run_to_its_end
from algo.run.folder import OpenedRun, cancel_on_signals
from configs.schema import Config
from store.agents import AGENTS
from store.client import connect
from store.schema import TokenLimits

logger = logging.getLogger("algo.find_best_prompt")

Opened = tuple[Workload, RolloutQueue, Callable[[], Awaitable[object]]]
"""What is played, the queue to play it through, and its ``check_alive``."""


def run(config: Config, options: argparse.Namespace, plan: SearchPlan, slots: Slots, tree: Tree, suffix: str) -> int:
    """Search and show what was found; returns the exit status. suffix: see ``open_run``."""
    resume = options.resume == "auto"
    opened = begin_run(config, options.log_level, suffix=suffix, log="find_best_prompt.log", resume=resume)
    if isinstance(opened, int):
        return opened
    # Versions number prompts here: a resumed search takes back no update, so rollouts of every version stay valid.
    opened.state.policy_version = sys.maxsize
    status, done = run_to_its_end(
        _search(opened, options, plan, slots, tree),
        opened.config,
        logger,
        "interrupted; what was played is kept, and --resume auto goes on with it",
        {ProposerUnavailable: "{}"},
    )
    if done is None:
        return status
    findings, files = done
    if options.tasks:
        # The folder: each line of the file would be read as a prompt.
        usage = sorted({f"--prompts {file.parent}" for file in files.values()})
    else:
        usage = [f"--set game.prompts.{slot}={file}" for slot, file in files.items()]
    changed = [tree.difference(tree.candidates[findings.winner], tree.incumbent)] if findings.verdict else []
    lines = [findings.sentence(), *changed, *usage, str(opened.config.run_dir / PAGE_NAME)]
    wide_console().print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)
    return 0


async def _search(
    opened: OpenedRun, options: argparse.Namespace, plan: SearchPlan, slots: Slots, tree: Tree
) -> tuple[Findings, dict[str, Path]]:
    """Search, and write what was found into the run's folder. Returns it with the files of the prompts to use."""
    folder = opened.config.run_dir
    journal = Journal(folder / "journal.jsonl")
    async with AsyncExitStack() as stack:
        stack.callback(journal.close)
        journal.check_plan(_described(options, plan, tree))
        proposer = None
        if options.proposer_url:
            bounds = options.proposer_calls, options.proposer_tokens
            key = os.environ[options.proposer_key_env] if options.proposer_key_env else "none"
            language = "en" if options.tasks else "zh"
            proposer = Proposer(options.proposer_url, options.proposer_model, key, bounds, journal, language)
            stack.push_async_callback(proposer.close)
            await proposer.check()
        playing = _agent(opened, options) if options.tasks else _game(opened, options, slots)
        workload, queue, check_alive = await stack.enter_async_context(playing)
        arena = Arena(workload, queue, journal, check_alive, opened.began_before)
        try:
            findings = await Search(plan, slots, tree, arena, proposer).run()
        finally:
            write_tree(folder, tree)
    return findings, write_results(folder, opened.config.run.name, plan, tree, findings)


@asynccontextmanager
async def _agent(opened: OpenedRun, options: argparse.Namespace) -> AsyncIterator[Opened]:
    """An agent's tasks; the agent chooses its model itself, unless --endpoint names one."""
    config = opened.config
    searched, held_out = read_halves(options.tasks, options.held_out, config.run.seed)
    endpoints = (options.endpoint,) if options.endpoint else ()
    base = policy_resources(config, opened.state.run_id, options.model or "none", endpoints)
    limits = TokenLimits(context_tokens=config.rollout.context_tokens, reply_tokens=config.rollout.reply_tokens)
    cancel_on_signals()
    async with AsyncExitStack() as stack:
        client = connect(config.store.url, config.store.patience_seconds)
        stack.push_async_callback(client.close)
        await client.wait_until_reachable()
        queue = RolloutQueue(client, AGENTS, config.rollout, opened.resumption)
        stack.push_async_callback(queue.cancel_open)
        workload = AgentTasks(searched, held_out, base, limits, config.run.seed, tuple(options.reward_range))
        yield workload, queue, client.wait_until_reachable


@asynccontextmanager
async def _game(opened: OpenedRun, options: argparse.Namespace, slots: Slots) -> AsyncIterator[Opened]:
    """The game; the policy, if it plays, is served meanwhile."""
    async with serve_players(opened, [options.player, options.opponent], None) as served:
        workload = GameTasks(opened.config, options.player, options.opponent, served.resources, tuple(slots))
        yield workload, served.games, served.check_alive


def _described(options: argparse.Namespace, plan: SearchPlan, tree: Tree) -> dict[str, object]:
    prompts = json.dumps([dict(one.templates) for one in tree.candidates], ensure_ascii=False, sort_keys=True)
    files = {"prompts": prompts.encode(), "tasks": options.tasks.read_bytes() if options.tasks else b""}
    digests = {name: hashlib.blake2b(content, digest_size=8).hexdigest() for name, content in files.items()}
    chosen = {name: getattr(options, name) for name in ("held_out", "player", "opponent", "proposer_model")}
    return asdict(plan) | digests | chosen
