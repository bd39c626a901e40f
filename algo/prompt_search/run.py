"""Runs a search, prints the result and writes its files."""

import argparse
import hashlib
import json
import logging
import os
import shlex
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from pathlib import Path

import openai
from pydantic import BaseModel

from algo.evaluation.page import Page, Section, Table, value_text, wide_console
from algo.evaluation.players import serve_players
from algo.machine.atomic_files import write_atomically
from algo.prompt_search.arena import Arena, Journal
from algo.prompt_search.plan import SearchPlan, read_halves
from algo.prompt_search.prompts import Slots, Tree
from algo.prompt_search.proposer import Proposer
from algo.prompt_search.search import Search
from algo.prompt_search.tasks import AgentTasks, GameTasks, Workload
from algo.rollouts.queue import RolloutQueue
from algo.rollouts.resources import policy_resources
from algo.run.command_line import begin_run, run_to_completion
from algo.run.folder import OpenedRun, cancel_on_signals
from algo.run.names import resume_options
from configs.agents import SECONDS_TO_END
from configs.schema import Config
from configs.section import ConfigError
from store.agents import AGENTS
from store.client import connect
from store.schema import TokenLimits

logger = logging.getLogger("algo.find_best_prompt")

PAGE_NAME = "prompts.html"
_PROPOSER_SECONDS = 120.0
_NO_ANSWER = (
    "the proposer does not answer ({}); finished rollouts are kept: start it or correct --proposer-url, and run "
    "the same command with --resume auto"
)
_LEAD = (
    "{spent} of {budget} rollouts were spent, {failed} of them failed. Intervals are 95 % (bootstrap over tasks). "
    "Races select a winner on tasks of their own; only the held-out tasks, whose number is fixed in advance, decide "
    "whether the winner is better."
)

Opened = tuple[Workload, RolloutQueue, Callable[[], Awaitable[object]]]
"""Workload, queue and ``check_alive``."""


def run(config: Config, options: argparse.Namespace, plan: SearchPlan, slots: Slots, tree: Tree, suffix: str) -> int:
    """Search and print the result; returns the exit status. suffix: see ``open_run``."""
    resume = options.resume == "auto"
    opened = begin_run(
        config,
        options.log_level,
        suffix=suffix,
        log="find_best_prompt.log",
        resume=resume,
        policy_version=sys.maxsize,  # versions are digests of prompts here, and all stay valid
    )
    folder = opened.config.run_dir
    search = run_to_completion(
        _search(opened, options, plan, slots, tree),
        opened.config,
        logger,
        f"interrupted; finished rollouts are kept, and {resume_options(config, folder.name, suffix)} continues",
        {openai.OpenAIError: _NO_ANSWER},
    )
    files = _write_results(folder, opened.config.run.name, search)
    if options.tasks:
        usage = [shlex.join(["--prompts", str(folder / "winner")])]  # the folder, since each line of a file is a prompt
    else:
        usage = [shlex.join(["--set", f"game.prompts.{slot}={file}"]) for slot, file in files.items()]
    changed = [tree.difference(search.winner, tree.incumbent)] if search.verdict else []
    lines = [search.sentence(), *changed, *usage, str(folder / PAGE_NAME)]
    wide_console().print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)
    return 0


async def _search(opened: OpenedRun, options: argparse.Namespace, plan: SearchPlan, slots: Slots, tree: Tree) -> Search:
    folder = opened.config.run_dir
    journal = Journal(folder / "journal.jsonl")
    async with AsyncExitStack() as stack:
        stack.callback(journal.close)
        _check_plan(journal, options, plan, tree)
        stack.callback(_write_tree, folder, tree)  # also after a failed search
        proposer = None
        if options.proposer_url:
            key = os.environ[options.proposer_key_env].strip() if options.proposer_key_env else "none"
            client = openai.AsyncOpenAI(base_url=options.proposer_url, api_key=key, timeout=_PROPOSER_SECONDS)
            await stack.enter_async_context(client)
            bounds, language = (options.proposer_calls, options.proposer_tokens), "en" if options.tasks else "zh"
            proposer = Proposer(client, options.proposer_model, *bounds, journal, language)
        playing = _agent(opened, options) if options.tasks else _game(opened, options)
        workload, queue, check_alive = await stack.enter_async_context(playing)
        search = Search(plan, slots, tree, Arena(workload, queue, journal, check_alive, opened.is_resumed), proposer)
        await search.run()
    return search


@asynccontextmanager
async def _agent(opened: OpenedRun, options: argparse.Namespace) -> AsyncIterator[Opened]:
    """An agent's tasks; without --endpoint the agent chooses its model."""
    config = opened.config
    searched, held_out = read_halves(options.tasks, options.held_out, config.run.seed)
    endpoints = (options.endpoint,) if options.endpoint else ()
    base = policy_resources(config, opened.state.run_id, options.model or "none", endpoints)
    limits = TokenLimits(context_tokens=config.rollout.context_tokens, reply_tokens=config.rollout.reply_tokens)
    cancel_on_signals()
    async with AsyncExitStack() as stack:
        client = connect(config.store.url, config.store.retry_seconds)
        stack.push_async_callback(client.close)
        await client.wait_until_reachable()
        queue = RolloutQueue(client, AGENTS, config.rollout, opened.resumption)
        stack.push_async_callback(queue.cancel_open)
        # A prompt that makes the agent hang earns the lowest reward; the hub's timeout would leave its tasks out.
        seconds = max(config.rollout.timeout_seconds - SECONDS_TO_END, config.rollout.timeout_seconds / 2)
        bounds = tuple(options.reward_range)
        most = options.max_calls
        workload = AgentTasks(searched, held_out, base, limits, config.run.seed, bounds, seconds, most)
        yield workload, queue, client.wait_until_reachable


@asynccontextmanager
async def _game(opened: OpenedRun, options: argparse.Namespace) -> AsyncIterator[Opened]:
    """The game; the policy is served if it plays."""
    async with serve_players(opened, [options.player, options.opponent], None) as served:
        workload = GameTasks(opened.config, options.player, options.opponent, served.resources)
        yield workload, served.games, served.check_alive


def _check_plan(journal: Journal, options: argparse.Namespace, plan: SearchPlan, tree: Tree) -> None:
    """Raise ConfigError if the journal belongs to a search with another plan."""
    tasks = hashlib.sha256(options.tasks.read_bytes() if options.tasks else b"").hexdigest()
    names = ("held_out", "model", "player", "opponent", "proposer_model", "max_calls")
    chosen = {name: getattr(options, name) for name in names}
    chosen["reward_range"] = options.reward_range[0]  # the reward of a failed agent; the upper bound may be corrected
    planned = {"prompts": [one.templates for one in tree.candidates], "tasks": tasks, **asdict(plan), **chosen}
    if "plan" not in journal:
        journal.add("plan", planned)
    # A journal of an earlier version may lack some.
    if changed := [name for name, value in planned.items() if journal["plan"].get(name, value) != value]:
        raise ConfigError(
            f"the journal belongs to a search with other {', '.join(changed)}: resume it with the same arguments, or "
            f"start another search with --resume never"
        )


def _write_tree(folder: Path, tree: Tree) -> None:
    """Write every prompt as a file, and ``tree.txt`` with parent, reason and difference of each edit."""
    for candidate in tree.candidates:
        for slot, text in candidate.templates.items():
            write_atomically(folder / "prompts" / f"{candidate.number:03d}-{slot}.txt", text + "\n")
    edits = [f"{one.title}\n{tree.difference(one)}\n" for one in tree.candidates]
    write_atomically(folder / "tree.txt", "\n".join([*edits, *(f"rejected: {one}\n" for one in tree.rejected)]))


def _write_results(folder: Path, title: str, search: Search) -> dict[str, Path]:
    """Write the page and ``result.json``; returns the files of the prompts to use, by slot.

    Those are the winner's if it is confirmed, else the baseline's.
    """
    tree, verdict = search.tree, search.verdict
    confirmed = verdict is not None and verdict.better
    used = search.winner if confirmed else tree.incumbent
    files = {slot: folder / "winner" / f"{slot}.txt" for slot in used.templates}
    for slot, file in files.items():
        write_atomically(file, used.templates[slot] + "\n")
    found = {
        "winner": search.winner.number,
        "confirmed": confirmed,
        "verdict": verdict and asdict(verdict),
        "races": search.races,
        "spent": search.arena.spent,
        "failed": search.arena.failed,
        "plan": asdict(search.plan),
        "candidates": [asdict(candidate) for candidate in tree.candidates],
        "rejected": tree.rejected,
    }
    write_atomically(
        folder / "result.json", json.dumps(found, ensure_ascii=False, indent=1, default=BaseModel.model_dump)
    )
    lead = _LEAD.format(budget=search.plan.budget, **found)
    sections = [_held_out(search), _races(search), _prompts(tree)]
    Page(f"The best prompt of {title}", sections, search.sentence(), confirmed, [lead]).write(folder / PAGE_NAME)
    return files


def _held_out(search: Search) -> Section:
    verdict, first, winner = search.verdict, search.tree.incumbent, search.winner
    if verdict is None:
        return Section(
            "Held-out tasks", lead=["No confirmation: the baseline won the races, or no held-out task finished."]
        )
    names = (f"{winner.name}, winner of the races", f"{first.name}, the baseline", "difference")
    means = (verdict.challenger, verdict.incumbent, verdict.difference)
    rows = [(name, str(verdict.tasks), value_text(mean, 2)) for name, mean in zip(names, means, strict=True)]
    texts = [("Difference", search.tree.difference(winner, first))]
    for one, played in zip((first, winner), search.examples or (), strict=False):
        transcript = played.transcript or "(no model call was recorded)"
        texts.append(
            (f"A held-out task with {one.name}: reward {played.reward:.2f}", f"{played.summary}\n\n{transcript}")
        )
    return Section("Held-out tasks", tables=[Table("", ("prompt", "tasks", "mean reward"), rows)], texts=texts)


def _races(search: Search) -> Section:
    rows = [
        (f"{of['race']} #{of['number']}", str(of["tasks"]), value_text(of["reward"], 2), "yes" if of["won"] else "")
        for of in search.races
    ]
    return Section("Races", tables=[Table("", ("race and prompt", "tasks", "mean reward", "won"), rows)])


def _prompts(tree: Tree) -> Section:
    texts = [(one.title, tree.difference(one) or "the built-in texts") for one in tree.candidates]
    return Section("All prompts", texts=texts, lead=[f"Rejected: {one}" for one in tree.rejected])
