"""``python -m algo.publish RUN DIR``: publish a checkpoint as a small folder, to play or evaluate on any machine.

DIR has the layout of a run's folder, so that ``algo.serve``, ``algo.evaluate`` and the pages read it as one: the
configuration without paths of this machine, and the newest checkpoint without the optimizer, in bfloat16. Of an
imitation (RUN/seed-1-imitate-warm-start), from which a recipe begins, and of an agent it is the model's folder alone.
"""

import argparse
import json
import re
import shlex
import shutil
from pathlib import Path

from algo.machine.disk import atomic_folder
from algo.werewolf.file_names import MODEL_FOLDER
from configs.command_line import exit_on
from configs.loading import schema_of
from configs.section import ConfigError
from configs.werewolf import WerewolfConfig
from store.program import run_program

_SECTIONS = ("run", "game", "rollout", "reward", "model", "training", "serving")
"""Sections that games with the policy need; the others name models, folders and addresses of this machine."""
_LEFT_OUT = {
    "game": {"opponent", "seating"},
    "serving": {
        *("mode", "servers", "urls", "public_urls", "port", "devices", "share_gpus"),
        *("tensor_parallel", "kv_offload_gb", "weight_transfer"),
    },
}
"""Settings of these sections that name such things, or fit the GPUs of this machine: left out."""
_OF_TRAINING = ("device", "max_sequence_tokens")
"""The settings of this section that games need; the others fit the machine that trained."""


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
    """Write the folder; returns its model folder, which of an imitation or agent is ``directory`` itself.

    Raises ConfigError without the checkpoint, FileExistsError.
    """
    import yaml

    from algo.run.checkpoints import STATE_FILE, RunState, checkpoint_at, load_state

    if directory.exists():
        raise FileExistsError(f"{directory} exists: name another folder, or remove it")
    imitated = step is None and (run / MODEL_FOLDER).is_dir()
    checkpoint = run if imitated else checkpoint_at(run, step)
    if not (checkpoint / MODEL_FOLDER).is_dir():
        raise ConfigError(f"{checkpoint} has several policies: only a run with one can be published")
    if imitated or schema_of(run / "config.yaml") is not WerewolfConfig:
        with atomic_folder(directory) as unfinished:
            _copy_model(checkpoint / MODEL_FOLDER, unfinished)
        return directory
    state = load_state(checkpoint)
    whole = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8")) or {}
    config = {
        section: {
            name: value for name, value in (whole.get(section) or {}).items() if name not in _LEFT_OUT.get(section, ())
        }
        for section in _SECTIONS
    }
    config["training"] = {name: value for name, value in config["training"].items() if name in _OF_TRAINING}
    place = Path("checkpoints") / checkpoint.name
    model = place / MODEL_FOLDER
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", directory.name).strip("-_") or "published"
    config["run"] |= {"name": name, "dir": directory.parent.name}
    config["model"]["path"] = str(model)
    with atomic_folder(directory) as unfinished:
        (unfinished / model).mkdir(parents=True)
        _copy_model(checkpoint / MODEL_FOLDER, unfinished / model)
        for template, path in (config["game"].get("prompts") or {}).items():
            config["game"]["prompts"][template] = f"prompt_{template}.txt"
            # Of a published folder it lies there; of a run it is relative to where the run was started.
            source = run / path if (run / path).is_file() else Path(path)
            shutil.copyfile(source, unfinished / f"prompt_{template}.txt")
        text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
        (unfinished / "config.yaml").write_text(text, encoding="utf-8")
        kept = RunState(run_id=name, step=state.step, policy_version=state.policy_version)
        (unfinished / place / STATE_FILE).write_text(kept.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return directory / model


def _copy_model(folder: Path, target: Path) -> None:
    for file in folder.iterdir():
        copy = _save_rounded if file.suffix == ".safetensors" else shutil.copytree if file.is_dir() else shutil.copyfile
        copy(file, target / file.name)
    config = target / "config.json"
    if config.is_file():
        config.write_text(json.dumps(json.loads(config.read_bytes()) | {"dtype": "bfloat16"}, indent=2) + "\n")


def _save_rounded(file: Path, target: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    rounded = {
        name: (tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor).contiguous()
        for name, tensor in load_file(file).items()
    }
    save_file(rounded, target, metadata={"format": "pt"})


def main() -> int:
    """Entry point; the exit status."""
    options = parse_arguments()
    with exit_on(ConfigError, OSError):
        model = publish(options.run, options.directory, options.step)
    size = sum(file.stat().st_size for file in model.rglob("*")) / 1e6
    folder = shlex.quote(str(options.directory))
    plays = model != options.directory and schema_of(options.run / "config.yaml") is WerewolfConfig
    next_command = f"; to play against it: make play MODEL={folder}" if plays else ""
    print(f"{model}: {size:.1f} MB{next_command}")
    return 0


if __name__ == "__main__":
    run_program(main)
