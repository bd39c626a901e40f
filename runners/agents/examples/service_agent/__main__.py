"""``python -m runners.agents.examples.service_agent``: the service, in an environment made at its first start."""

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
    """The interpreter of the environment at ``directory``, which has what the service requires.

    Raises subprocess.CalledProcessError where it cannot be installed.
    """
    python = directory / "bin" / "python"
    marker, wanted = directory / _INSTALLED, REQUIREMENTS.read_text()
    if marker.is_file() and marker.read_text() == wanted:
        return python
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    if uv := shutil.which("uv", path=beside):
        subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, directory], check=True)
        # Without the settings of the project around us, which are about torch.
        install = [uv, "pip", "install", "--quiet", "--no-config", "--python", python]
    else:
        subprocess.run([sys.executable, "-m", "venv", "--clear", directory], check=True)
        install = [python, "-m", "pip", "install", "--quiet"]
    subprocess.run([*install, "--requirement", REQUIREMENTS], check=True)
    marker.write_text(wanted)
    return python


def main() -> None:
    """Make the environment where it is missing, and become the service."""
    parser = argparse.ArgumentParser(prog="python -m runners.agents.examples.service_agent", description=__doc__)
    parser.add_argument("--port", type=int, default=9000, help="port of 127.0.0.1 (default: %(default)s)")
    parser.add_argument(
        "--environment",
        type=Path,
        default=Path("runs/service_agent/venv"),
        metavar="DIR",
        help="the service's own virtual environment (default: %(default)s)",
    )
    parser.add_argument("--only-install", action="store_true", help="make the environment and start nothing")
    options = parser.parse_args()
    python = make_environment(options.environment.absolute())
    if not options.only_install:
        os.execv(python, [str(python), "-I", str(HERE / "service.py"), "--port", str(options.port)])


if __name__ == "__main__":
    main()
