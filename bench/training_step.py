"""Time of a training step of tiny_cpu.yaml by stage, the share outside vLLM and verl, and the speed-up with games of
the next step in parallel (``rollout.max_policy_lag``), on the same cores."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean

from rich.table import Table

from bench.tables import table_of

STEPS = 3
STEPS_WITH_LAG = 8
LAG = ("rollout.max_policy_lag=1", "training.rollout_correction.rollout_is=token")


def _steps(model_folder: Path, count: int, *settings: str) -> list[dict[str, float]]:
    """The metrics of a run's steps; without the first, which warms up."""
    with tempfile.TemporaryDirectory() as folder:
        settings = (f"run.dir={folder}", f"model.path={model_folder}", f"run.steps={count}", *settings)
        options = [part for setting in settings for part in ("--set", setting)]
        command = [sys.executable, "-m", "algo.werewolf_verl", "--local", "16", *options]
        demo = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if demo.returncode:
            raise RuntimeError(f"the run ended with exit code {demo.returncode}:\n{demo.stdout[-3000:]}")
        (summary,) = Path(folder).glob("*/summary.json")
        return json.loads(summary.read_text())["step_metrics"][1:]


def measure(model_folder: Path) -> Table:
    steps = _steps(model_folder, STEPS)
    stages = [name for name in steps[0] if name.startswith("seconds/")]
    rows = [(name.removeprefix("seconds/"), f"{fmean(step[name] for step in steps):.1f}") for name in stages]
    outside = fmean(step["time/overhead_share"] for step in steps)
    rows.append(("share outside vLLM and verl", f"{outside:.1%}"))
    return table_of(f"A training step of the tiny model, mean of {len(steps)}", ("what", "seconds"), rows)


def measure_lag(model_folder: Path) -> Table:
    """Run it twice, without lag and with a lag of one update."""
    rates, rows = [], []
    for name, settings in (("0", ()), ("1", LAG)):
        # The last step of a run with lag has no games of a next step in parallel.
        steps = _steps(model_folder, STEPS_WITH_LAG, *settings)
        seconds, waiting, games, lag = (
            fmean(step.get(metric, 0.0) for step in steps)
            for metric in ("seconds/step", "seconds/play", "rollouts/finished", "policy_lag/mean")
        )
        rates.append(3600 * games / seconds)
        figures = (f"{seconds:.1f}", f"{waiting:.1f}", f"{rates[-1]:.0f}", f"{rates[-1] / rates[0]:.2f}", f"{lag:.2f}")
        rows.append((name, *figures))
    columns = ("max_policy_lag", "seconds a step", "waiting for games", "games per hour", "ratio", "policy lag")
    return table_of(f"tiny_cpu.yaml, {STEPS_WITH_LAG - 1} steps each", columns, rows)
