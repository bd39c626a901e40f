"""Hub, runner and vLLMs that stay up over several runs of the algorithm, so that a restart is cheap."""

import json
import subprocess
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from tests.support.hub.hub_process import HubProcess
from tests.support.processes import end, start_module

STEPS = 2
GAMES = 4
LORA = ["model.lora_rank=8", "model.lora_alpha=16", "serving.kv_cache_gb=0.5"]


TEAM = ["policies={wolves: {side: wolf}, villagers: {side: good}}"]


class Machine:
    """Hub, runner and vLLMs that outlive algorithms. The vLLMs start on first use.

    serve: ``serve(model, *settings)`` starts a vLLM, or reuses one with equal settings, and returns its URL.
    """

    def __init__(self, folder: Path, model: Path, serve: Callable[..., str]):
        self.folder = folder
        self.model = model
        self.children: list[subprocess.Popen] = []
        self.hub = HubProcess(folder)
        self._serve = serve

    @property
    def whole(self) -> str:
        """URL of a vLLM for whole weights."""
        return self._serve(self.model)

    @cached_property
    def earlier(self) -> Path:
        """Adapters that no run trains."""
        from tests.support.small_models import random_adapters

        return random_adapters(self.folder / "earlier", self.model, seed=9, rank=8)

    @property
    def adapters(self) -> str:
        """URL of a vLLM for the adapters of a team, beside ``earlier``, which has the name of a frozen policy."""
        return self._serve(self.model, *LORA, *TEAM, self.frozen)

    @property
    def frozen(self) -> str:
        return f"frozen={{earlier: {{path: {self.earlier}}}}}"

    def settings(self, name: str, *more: str) -> list[str]:
        return [
            f"run.name={name}",
            f"run.dir={self.folder}",
            f"run.steps={STEPS}",
            f"store.url={self.hub.url}",
            "rollout.groups_per_step=2",
            "rollout.rollouts_per_group=2",
            "game.rules={round_limit: 1}",
            "checkpoint.every_steps=1",
            f"model.path={self.model}",
            "serving.mode=attach",
            *([] if any(setting.startswith("serving.urls=") for setting in more) else [f"serving.urls=[{self.whole}]"]),
            *more,
        ]

    async def start(self):
        await self.hub.start()
        self._start("runner", "runners.werewolf", "--n", "8", "--store", self.hub.url)

    def algorithm(self, name: str, *more: str) -> subprocess.Popen:
        overrides = [part for setting in self.settings(name, *more) for part in ("--set", setting)]
        return self._start(name, "algo.werewolf_verl", "--resume", "auto", *overrides)

    def _start(self, name: str, module: str, *arguments: str) -> subprocess.Popen:
        child = start_module(self.folder / f"{name}.log", module, *arguments, mark=self.folder / name)
        self.children.append(child)
        return child

    def log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def stop(self):
        end(*self.children)
        self.hub.stop()


def finish(machine, name, *more):
    algorithm = machine.algorithm(name, *more)
    assert algorithm.wait(timeout=600) == 0, machine.log("runner")[-1500:] + machine.log(name)[-1500:]


def steps_of(machine, name):
    lines = (machine.folder / name / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]
