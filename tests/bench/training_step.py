"""Where the time of a training step of tiny_cpu.yaml goes: its stages, and what neither vLLM nor verl had of it."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean

from rich.table import Table

from configs.loading import DEFAULT_CONFIG

STEPS = 3


def measure(model_folder: Path) -> Table:
    """Run the demo with that configuration; the first step is left out, since it warms up what the others find warm."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--config", str(DEFAULT_CONFIG), "--no-warm-start", "--steps", str(STEPS)]
        command = [sys.executable, "-m", "algo.demo", "--runs-dir", folder, *options]
        demo = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if demo.returncode:
            raise RuntimeError(f"the demo ended with exit code {demo.returncode}:\n{demo.stdout[-3000:]}")
        (summary,) = Path(folder).glob("*/summary.json")
        steps = json.loads(summary.read_text())["step_metrics"][1:]
    table = Table(title=f"A training step of the tiny model, mean of {len(steps)}", title_justify="left")
    table.add_column("what")
    table.add_column("seconds", justify="right")
    for name in [name for name in steps[0] if name.startswith("seconds/")]:
        table.add_row(name.removeprefix("seconds/"), f"{fmean(step[name] for step in steps):.1f}")
    outside = fmean(step["time/share_outside_vllm_and_verl"] for step in steps)
    table.add_row("share outside vLLM and verl", f"{outside:.1%}")
    return table
