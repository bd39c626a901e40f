"""``--dry-run``: plays one rollout and prints it up to the training batch, without an update.

Start, task, runner, spans, triplets, trajectories and batch are those of a real step. The trainer recomputes the
log-probs of sampled tokens, so a mismatch between vLLM and verl shows before a day of training.
"""

import json
from contextlib import AsyncExitStack

from rich.console import Console
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from algo.advantages.baseline import RoleBaselines
from algo.advantages.registry import needs_groups
from algo.loop.agreement import check_agreement, logprob_agreement
from algo.loop.policy_update import by_learner, compute_advantages
from algo.loop.run_context import log_probs_of, start
from algo.loop.workload import Workload
from algo.machine.progress import game_progress
from algo.rollouts.triplets import Triplet
from algo.run.folder import OpenedRun, cancel_on_signals
from algo.run.metrics import trajectory_metrics
from algo.run.summary import RunSummary
from algo.sequences.batch import build_batch
from algo.sequences.trajectories import build_trajectories
from configs.loading import as_yaml


async def dry_run(opened: OpenedRun, workload: Workload, console: Console) -> None:
    """Play the first rollout of the first step and print it, from the task to the batch.

    Raises StoreUnreachable, ServingError, NoFinishedRollouts, LogProbMismatch or ConfigError, as a run.
    """
    config = opened.config
    tokenizer = AutoTokenizer.from_pretrained(config.model.path, local_files_only=True)
    cancel_on_signals()
    async with AsyncExitStack() as stack:
        run = await start(opened, workload, RunSummary(config.run_dir), stack)
        cancel_on_signals()  # again, since Ray replaces the handlers
        await run.select_past_selves()
        resources = run.resources()
        task = workload.tasks(1)[0]
        _show(console, "Configuration", as_yaml(config))
        _show(console, "Task (the rollout's input)", json.dumps(task.encode(), indent=2, ensure_ascii=False))
        _show(console, "Resources", resources.model_dump_json(indent=2))
        played = await run.queue.play([task], resources, run.refresh_endpoints, game_progress("the rollout", 1))
        rollout = played.finished[0]
        for number, triplet in enumerate(rollout.triplets):
            _show_turn(console, tokenizer, number, triplet)
        _show(console, "Transcript", rollout.outcome.transcript)
        found = build_trajectories(played.finished, workload.rewards_of, config.training.max_sequence_tokens)
        metrics = workload.metrics(played) | trajectory_metrics(found.trajectories)
        agreement = []
        await run.serving.sleep()
        for share in await compute_advantages(
            run, by_learner(config, found.trajectories), RoleBaselines(config.advantage.role_baseline_decay)
        ):
            console.rule(f"Trajectories of {share.learner}")
            for trajectory, advantage in zip(share.trajectories, share.advantages.per_token, strict=True):
                _print_as_it_is(
                    console,
                    f"{trajectory.actor}, {trajectory.role}, segment {trajectory.segment}: {len(trajectory.turn_ends)} "
                    f"turns, {len(trajectory.token_ids)} tokens, {sum(trajectory.loss_mask)} of them sampled; reward "
                    f"{trajectory.reward:+.3f}, largest advantage ±{advantage.abs().max().item():.3f}",
                )
            metrics |= config.metrics_of(share.learner, share.advantages.metrics)
            if share.trajectories:
                batch = build_batch(share.trajectories, temperature=config.rollout.temperature)
                logprobs = await run.trainer.run(log_probs_of, run.engine, share.learner, batch)
                compared = logprob_agreement(share.trajectories, logprobs, policy_version=0)
                named = {f"logprobs/rollout_difference_{name}": value for name, value in compared.items()}
                metrics |= config.metrics_of(share.learner, named)
                agreement.append(compared)
        await run.serving.wake()  # an attached vLLM goes on after this run
        left_out = played.left_out + found.left_out
        metrics |= {f"left_out/{reason}": float(count) for reason, count in left_out.items()}
        _show(console, "Metrics", "\n".join(f"{name}: {value:g}" for name, value in sorted(metrics.items())))
        for compared in agreement:
            check_agreement(config, compared, "log-probs of the sampled tokens")
    console.print("No update, no checkpoint.")
    if needs_groups(config.advantage.estimator):
        console.print("A single rollout has no baseline, hence no advantage.")


def _show(console: Console, title: str, text: str) -> None:
    console.rule(title)
    _print_as_it_is(console, text)


def _show_turn(console: Console, tokenizer: PreTrainedTokenizerBase, number: int, triplet: Triplet) -> None:
    facts = triplet.metadata
    prompt, response = triplet.prompt["token_ids"], triplet.response["token_ids"]
    new = prompt[facts["context_tokens"] :]
    mean_logprob = sum(triplet.response["logprobs"]) / max(len(response), 1)
    verdict = "valid" if facts["valid"] else f"invalid: {facts['error']}"
    shown = f"; facts {facts['facts']}" if facts.get("facts") else ""
    console.rule(f"turn {number}: {facts['actor']}, {facts['question'] or 'call'}, segment {facts['segment']}")
    console.print(
        f"{len(prompt)} prompt tokens, {len(new)} of them new; {len(response)} sampled, "
        f"mean log-prob {mean_logprob:.3f}; {verdict}{shown}",
        highlight=False,
    )
    _print_as_it_is(console, tokenizer.decode(new), "dim")
    _print_as_it_is(console, tokenizer.decode(response), "bold")


def _print_as_it_is(console: Console, text: str, style: str | None = None) -> None:
    # Model output is untrusted: no markup, emoji names or control codes.
    printable = "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
    console.print(printable, style=style, markup=False, emoji=False, highlight=False, soft_wrap=True)
