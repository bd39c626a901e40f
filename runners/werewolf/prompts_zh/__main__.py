"""``python -m runners.werewolf.prompts_zh``: write the built-in prompts of a preset as files, to read or to replace.

The files have the names of ``game.prompts``: ``system.txt`` for the frame, and one for each role's guidance.
"""

import argparse
from pathlib import Path

from runners.werewolf.game import get_preset
from runners.werewolf.prompts_zh.system import FRAME, guidance


def main() -> None:
    """Write the files; existing files are kept."""
    parser = argparse.ArgumentParser(
        prog="python -m runners.werewolf.prompts_zh",
        description="Write the built-in prompts of a preset as files, to read or to replace.",
    )
    parser.add_argument("--preset", default="5p_tiny", help="rule preset (default: %(default)s)")
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="output folder")
    options = parser.parse_args()
    try:
        preset = get_preset(options.preset)
    except ValueError as error:
        parser.error(str(error))
    texts = {"system": FRAME}
    texts |= {role.value: guidance(preset, role) for role in sorted(set(preset.deck), key=lambda role: role.value)}
    options.to.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        file = options.to / f"{name}.txt"
        if not file.exists():
            file.write_text(text + "\n", encoding="utf-8")
        print(file)


if __name__ == "__main__":
    main()
