"""The wheel alone, installed into an environment without this repository: it has what the commands need."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.slow  # makes environments

REPOSITORY = Path(__file__).parents[1]
UV = Path(sys.executable).with_name("uv")
PACKAGES = ("algo", "configs", "runners", "store")
DATA = {".html", ".yaml", ".txt", ".jsonl", ".js", ".css", ".svg", ".typed"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site-packages of a new environment that has the wheel, and all else from the one that runs the tests."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for package in PACKAGES:
        shutil.copytree(REPOSITORY / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)

    def uv(*arguments: str | Path) -> None:
        made = subprocess.run([UV, *arguments], cwd=folder, capture_output=True, text=True)
        assert made.returncode == 0, made.stderr

    uv("build", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", folder / "dist", source)
    uv("venv", "--python", sys.executable, folder / "venv")
    uv("pip", "install", "--python", folder / "venv", "--no-deps", *(folder / "dist").glob("*.whl"))
    (found,) = (folder / "venv").glob("lib/python3*/site-packages")
    (found / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return found


@pytest.fixture
def werewolf(site: Path, tmp_path: Path):
    """Runs `werewolf …` in an empty folder; returns what it prints."""

    def run(*arguments: str) -> str:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [site.parents[2] / "bin" / "werewolf", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_the_data_that_commands_read_is_in_the_wheel(site: Path) -> None:
    files = [path.relative_to(REPOSITORY) for package in PACKAGES for path in (REPOSITORY / package).rglob("*")]
    data = [file for file in files if file.suffix in DATA and not file.is_relative_to("configs/fleet")]
    assert [file for file in data if not (site / file).is_file()] == []
    assert {file.parent.name for file in data if file.suffix == ".typed"} == set(PACKAGES)


@pytest.mark.parametrize("arguments", [("train", "--config", "demo"), ("train-agent", "--config", "agent_math.yaml")])
def test_a_shipped_configuration_and_its_files_are_found_from_any_folder(site: Path, werewolf, arguments) -> None:
    config = yaml.safe_load(werewolf(*arguments, "--print-config"))
    agents = config.get("agents", {})
    for file in config["game"]["prompts"].values() if "game" in config else (agents["train"], agents["val"]):
        assert Path(file).is_relative_to(site) and Path(file).is_file()


def test_every_command_is_a_program(werewolf) -> None:
    listed = werewolf("--help")
    assert "(not installed)" not in listed
    commands = [line.split()[0] for line in listed.splitlines() if " python -m " in line]
    assert len(commands) > 10
    for command in commands:
        assert "usage:" in werewolf(command, "--help")


def test_a_game_is_played_from_any_folder(werewolf) -> None:
    assert "胜" in werewolf("runner", "play", "--preset", "5p_tiny", "--seed", "1")
