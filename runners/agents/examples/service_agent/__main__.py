"""``python -m runners.agents.examples.service_agent``: the service; the first start creates its environment."""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "requirements.txt"
_INSTALLED = "installed.txt"


def make_environment(directory: Path) -> Path:
    """Create the environment at ``directory`` unless it is up to date; returns its interpreter.

    Raises subprocess.CalledProcessError if installation fails.
    """
    python = directory / "bin" / "python"
    marker, wanted = directory / _INSTALLED, REQUIREMENTS.read_text()
    if marker.is_file() and marker.read_text() == wanted:
        return python
    search_path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    if uv := shutil.which("uv", path=search_path):
        subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, directory], check=True)
        # --no-config: the settings of this project concern torch.
        install = [uv, "pip", "install", "--quiet", "--no-config", "--python", python]
    else:
        subprocess.run([sys.executable, "-m", "venv", "--clear", directory], check=True)
        install = [python, "-m", "pip", "install", "--quiet"]
    subprocess.run([*install, "--requirement", REQUIREMENTS], check=True)
    marker.write_text(wanted)
    return python


def main() -> None:
    """Create the environment if needed, and run the service."""
    parser = argparse.ArgumentParser(
        prog="python -m runners.agents.examples.service_agent",
        description="Run the service; the first start creates its environment.",
    )
    parser.add_argument("--port", type=int, default=9000, help="port of 127.0.0.1 (default: %(default)s)")
    parser.add_argument(
        "--environment",
        type=Path,
        default=Path("runs/service_agent/venv"),
        metavar="DIR",
        help="the service's own virtual environment (default: %(default)s)",
    )
    parser.add_argument("--only-install", action="store_true", help="create the environment only")
    options = parser.parse_args()
    python = make_environment(options.environment.absolute())
    if not options.only_install:
        os.execv(python, [str(python), "-I", str(HERE / "service.py"), "--port", str(options.port)])


if __name__ == "__main__":
    main()
