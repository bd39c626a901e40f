"""The site's pages agree with the code and with each other."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "reference"]


def messages():
    """Every text in the code, in one: parts of a formatted one have … between them."""
    for package in ("algo", "configs", "runners", "store"):
        for file in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value
                elif isinstance(node, ast.JoinedStr):
                    yield "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)


@pytest.mark.parametrize("page", ["troubleshooting.md", "troubleshooting.zh.md"])
def test_errors_in_troubleshooting_are_those_of_the_code(page):
    rows = re.findall(r"^\| (`.+?) \|", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.MULTILINE)
    named = [error for row in rows for error in re.findall(r"`([^`]+)`", row) if error != "model.path"]
    assert len(named) > 30
    said = "\n".join(messages())
    assert [error for error in named if error not in said] == []


def test_each_translation_has_its_page_and_the_same_commands():
    differing = []
    for page in PAGES:
        if page.name.endswith(".zh.md"):
            english = page.with_name(page.name.replace(".zh.md", ".md"))
            commands = [
                re.findall(
                    r"^(?:[A-Z_]+=\S+ )*(?:python|make|agl)[^#\n]*", text.read_text(encoding="utf-8"), re.MULTILINE
                )
                for text in (page, english)
            ]
            if [line.split() for line in commands[0]] != [line.split() for line in commands[1]]:
                differing.append((page.name, [*set(commands[0]) ^ set(commands[1])]))
    assert differing == []


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    english = {page.relative_to(ROOT / "docs").as_posix() for page in PAGES if not page.name.endswith(".zh.md")}
    assert {page for page in english if f": {page}\n" not in navigation} == set()
