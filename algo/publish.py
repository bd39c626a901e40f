"""``python -m algo.publish RUN DIR``: a checkpoint as a small folder, to play against and to evaluate on any machine.

DIR has the layout of a run's folder, so that ``algo.serve``, ``algo.evaluate`` and the pages read it as one: the
configuration without paths of this machine, and the newest checkpoint without the optimizer, in bfloat16.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path

from configs.section import ConfigError

_PROMPTS = "prompts"
_OF_THIS_MACHINE = ("store", "local", "log", "checkpoint", "players", "judge")
"""Sections that do not matter for playing."""


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; exits with a usage message for an invalid one."""
    parser = argparse.ArgumentParser(
        prog="python -m algo.publish",
        description="Write a run's checkpoint as a small folder in bfloat16, to play against (make play MODEL=DIR) and "
        "to evaluate on any machine.",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of the run, e.g. runs/learn_wolf-…/seed-1")
    parser.add_argument("directory", type=Path, metavar="DIR", help="folder to write, e.g. models/mine")
    parser.add_argument("--step", type=int, metavar="N", help="the checkpoint of this step (default: the newest)")
    return parser.parse_args(arguments)


def publish(run: Path, directory: Path, step: int | None = None) -> Path:
    """Write the folder; returns its model folder. Raises ConfigError without the checkpoint, FileExistsError."""
    import yaml

    from algo.run.checkpoints import STATE_FILE, RunState, checkpoint_at, load_state

    checkpoint = checkpoint_at(run, step)
    state = load_state(checkpoint)
    config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    target = directory / "checkpoints" / checkpoint.name
    model = target / "huggingface"
    if not (checkpoint / "huggingface").is_dir():
        raise ConfigError(f"{checkpoint} has several policies: only a run with one can be published")
    model.mkdir(parents=True)
    for file in (checkpoint / "huggingface").iterdir():
        if file.suffix == ".safetensors":
            _save_rounded(file, model / file.name)
        else:
            shutil.copyfile(file, model / file.name)
    for name in _OF_THIS_MACHINE:
        config.pop(name, None)
    config["run"] |= {"name": directory.name, "dir": str(directory.parent.name)}
    config["model"]["path"] = str(model.relative_to(directory))
    prompts = config.get("game", {}).get("prompts", {})
    for name, path in prompts.items():
        (directory / _PROMPTS).mkdir(exist_ok=True)
        prompts[name] = f"{_PROMPTS}/{name}.txt"
        shutil.copyfile(path, directory / prompts[name])
    (directory / "config.yaml").write_text(
        yaml.safe_dump(config, sort_keys=False, allow_unicode=True), encoding="utf-8"
    )
    kept = RunState(run_id=directory.name, step=state.step, policy_version=state.policy_version)
    (target / STATE_FILE).write_text(kept.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return model


def _save_rounded(file: Path, target: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    rounded = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in load_file(file).items()}
    save_file(rounded, target, metadata={"format": "pt"})
    config = target.parent / "config.json"
    if config.is_file():
        config.write_text(json.dumps(json.loads(config.read_text()) | {"dtype": "bfloat16"}, indent=2) + "\n")


def main() -> int:
    """Entry point; the exit status."""
    options = parse_arguments()
    try:
        model = publish(options.run, options.directory, options.step)
    except (ConfigError, FileExistsError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    size = sum(file.stat().st_size for file in model.iterdir()) / 1e6
    print(f"{model}: {size:.1f} MB; to play against it: make play MODEL={options.directory}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
