"""Where the time of a training step of tiny_cpu.yaml goes: its stages, and what neither vLLM nor verl had of it; and
what it gains where games of the next step are played meanwhile (``rollout.max_policy_lag``), on the same cores."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean

from rich.table import Table

from configs.loading import DEFAULT_CONFIG

STEPS = 3
STEPS_WITH_LAG = 8
LAG = ("rollout.max_policy_lag=1", "training.rollout_correction.rollout_is=token")


def _steps(count: int, *settings: str) -> list[dict[str, float]]:
    """The metrics of a demo's steps; the first is left out, since it warms up what the others find warm."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--config", str(DEFAULT_CONFIG), "--no-warm-start", "--steps", str(count)]
        options += [part for setting in settings for part in ("--set", setting)]
        command = [sys.executable, "-m", "algo.demo", "--runs-dir", folder, *options]
        demo = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if demo.returncode:
            raise RuntimeError(f"the demo ended with exit code {demo.returncode}:\n{demo.stdout[-3000:]}")
        (summary,) = Path(folder).glob("*/summary.json")
        return json.loads(summary.read_text())["step_metrics"][1:]


def measure(model_folder: Path) -> Table:
    """Run the demo with that configuration."""
    steps = _steps(STEPS)
    table = Table(title=f"A training step of the tiny model, mean of {len(steps)}", title_justify="left")
    table.add_column("what")
    table.add_column("seconds", justify="right")
    for name in [name for name in steps[0] if name.startswith("seconds/")]:
        table.add_row(name.removeprefix("seconds/"), f"{fmean(step[name] for step in steps):.1f}")
    outside = fmean(step["time/share_outside_vllm_and_verl"] for step in steps)
    table.add_row("share outside vLLM and verl", f"{outside:.1%}")
    return table


def measure_lag() -> Table:
    """Run the demo twice, without lag and with a lag of one update."""
    table = Table(title=f"tiny_cpu.yaml, {STEPS_WITH_LAG - 1} steps each", title_justify="left")
    for column in ("max_policy_lag", "seconds a step", "waiting for games", "games per hour", "ratio", "policy lag"):
        table.add_column(column, justify="right")
    rates: list[float] = []
    for name, settings in (("0", ()), ("1", LAG)):
        # The last step of a run with lag has no further games beside it.
        steps = _steps(STEPS_WITH_LAG, *settings)
        seconds = fmean(step["seconds/step"] for step in steps)
        rates.append(3600 * fmean(step["games/finished"] for step in steps) / seconds)
        table.add_row(
            name,
            f"{seconds:.1f}",
            f"{fmean(step['seconds/play'] for step in steps):.1f}",
            f"{rates[-1]:.0f}",
            f"{rates[-1] / rates[0]:.2f}",
            f"{fmean(step.get('policy_lag/mean', 0.0) for step in steps):.2f}",
        )
    return table
