"""Every command of every README and every page of the site can be given: its module takes its options and settings.

Blocks of shell are run by bash with stand-ins for python and make that note what they are called with, so variables and
loops count as they are written. Nothing else is run, and no command goes beyond its configuration.
"""

import argparse
import importlib.util
import os
import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

from configs.agents import AgentConfig
from configs.loading import load_config
from configs.section import ConfigError
from configs.werewolf import WerewolfConfig

ROOT = Path(__file__).parent.parent
READMES = [
    *ROOT.glob("*.md"),
    *(path for top in ("algo", "configs", "docs", "runners", "store") for path in (ROOT / top).rglob("*.md")),
]
NOT_OURS = {"pip", "pytest", "vllm.entrypoints.openai.api_server"}
OF_AGENTS = {"algo.agent_verl"}
TIED = re.compile(r"/(Qwen3-(0\.6|1\.7|4)B)$")
"""Models with tied embeddings, which vLLM on CPU cannot be given new weights of."""
OUR_FOLDERS = ("algo", "bench", "configs", "docs", "runners", "store", "tests")
OUR_ENDINGS = (".py", ".js")
MADE_BY_USERS = {"configs/fleet/hub_token"}
REAL_TOOLS = ("sed", "mkdir", "basename", "dirname")
RECORDER = """
note() { printf '%s\\0' "$@" $'\\x1e' >> "$NOTES"; }  # in one write: some run in the background, and bash flushes lines
python() { note python "$@"; }
make() { note make "$@"; }
command_not_found_handle() { :; }
"""


def commands_of(readme, folder):
    """(Program and arguments, whether something is left out) of each command in a README's blocks and sentences."""
    text = readme.read_text(encoding="utf-8")
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    blocks = [block for language, block in fenced if language in ("", "bash") and "   |   " not in block]  # no drawings
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    prose_commands = re.findall(r"`((?:python -m|make) [^`]+)`", prose)
    return [
        *((command, "…" in command) for block in blocks for command in recorded(block, folder)),
        *((command, True) for block in prose_commands for command in recorded(block, folder)),
    ]


def recorded(script, folder):
    """What bash calls python and make with."""
    notes = folder / "notes"
    notes.write_text("")
    subprocess.run(
        [shutil.which("bash"), "-c", f"{RECORDER}\n{script}\nwait"],
        cwd=folder,
        env={"PATH": str(folder / "bin"), "NOTES": str(notes), "HOME": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    given = notes.read_text(encoding="utf-8").split("\x1e\0")[:-1]
    return [tuple(command.split("\0")[:-1]) for command in given]


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """(README, program and arguments, whether something is left out) of all READMEs, each command once."""
    folder = tmp_path_factory.mktemp("readmes")
    (folder / "bin").mkdir()
    for tool in REAL_TOOLS:
        (folder / "bin" / tool).symlink_to(shutil.which(tool))
    for name in ("algo", "configs", "runners"):
        (folder / name).symlink_to(ROOT / name)
    found = {}
    for readme in READMES:
        for command, is_part in commands_of(readme, folder):
            found.setdefault((command, is_part), readme.relative_to(ROOT))
    assert len(found) > 100
    before = os.getcwd()
    os.chdir(folder)
    yield [(readme, command, is_part) for (command, is_part), readme in found.items()]
    os.chdir(before)


class Parsed(Exception):
    """Carries what a program's parser made of its arguments."""


def options_of(module, arguments, monkeypatch):
    """The options that a program makes of its arguments; SystemExit where it refuses them, after it said why."""
    main = module if importlib.util.find_spec(module).submodule_search_locations is None else f"{module}.__main__"
    if hasattr(loaded := importlib.import_module(main), "parse_arguments"):
        return loaded.parse_arguments(arguments)
    parse = argparse.ArgumentParser.parse_args

    def parse_and_stop(self, *given, **named):
        raise Parsed(parse(self, *given, **named))

    monkeypatch.setattr("sys.argv", [module, *arguments])
    with monkeypatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", parse_and_stop)
        with pytest.raises(Parsed) as stopped:
            runpy.run_module(module, run_name="__main__")
    return stopped.value.args[0]


def problem_with(module, arguments, is_part, monkeypatch, capsys):
    """Why a command cannot be given; None if it can. is_part: something is left out, as in a sentence."""
    try:
        options = options_of(module, arguments, monkeypatch)
    except SystemExit as ended:
        told = capsys.readouterr().err.splitlines()[-1] if ended.code else None
        return (
            None
            if told and is_part and re.search("(is|are) required|expected one argument|name a recipe", told)
            else told
        )
    except ImportError as error:
        return str(error)
    if not hasattr(options, "overrides"):
        return None
    config = str(getattr(options, "config", None))
    if config.startswith("runs/") or (is_part and not config.endswith(".yaml")):
        return None
    schema = AgentConfig if module in OF_AGENTS else WerewolfConfig
    try:
        config = load_config(getattr(options, "config", None), options.overrides, schema)
    except ConfigError as error:
        return str(error)
    if TIED.search(str(config.model.path)) and config.training.device == "cpu":
        return f"{config.model.path} has tied embeddings and cannot be trained with training.device=cpu"
    return None


def test_every_python_command_is_taken(commands, monkeypatch, capsys):
    problems = []
    for readme, (program, *arguments), is_part in commands:
        if program != "python" or arguments[:1] != ["-m"] or arguments[1] in NOT_OURS:
            continue
        given = [argument for argument in arguments[2:] if argument != "…"]
        if problem := problem_with(arguments[1], given, is_part, monkeypatch, capsys):
            problems.append(f"{readme}: python {' '.join(arguments)}\n    {problem}")
    assert not problems, "\n".join(problems)


def test_every_make_target_is_there(commands):
    problems = []
    for readme, (program, *arguments), is_part in commands:
        if program == "make" and not is_part and arguments:
            made = subprocess.run(["make", "-n", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
            if made.returncode:
                problems.append(f"{readme}: make {' '.join(arguments)}\n    {made.stderr}")
    assert not problems, "\n".join(problems)


def test_every_file_that_is_named_is_there():
    """Of backticked names those in a folder of ours, and those of source files in any folder."""
    problems = []
    for readme in READMES:
        text = re.sub(r"^```.*?^```", "", readme.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        for name in re.findall(r"`([\w./-]+)`", text):
            top = name.partition("/")[0]
            is_folder = (ROOT / top).is_dir() and top in OUR_FOLDERS
            if "/" in name and (is_folder or name.endswith(OUR_ENDINGS)):
                places = [ROOT, readme.parent, ROOT / "runners/werewolf", *(ROOT / folder for folder in OUR_FOLDERS)]
                is_to_be_made = "NAME" in name or name in MADE_BY_USERS
                if not is_to_be_made and not any((place / name).exists() for place in places):
                    problems.append(f"{readme.relative_to(ROOT)}: {name}")
    assert not problems, "\n".join(problems)
