"""What a search leaves behind: a page, the tree of edits, and the winner as files that a run can be given."""

import json
from dataclasses import asdict
from pathlib import Path

from pydantic import BaseModel
from rich.console import Console

from algo.machine.whole_files import write_whole
from algo.prompt_search.plan import SearchPlan
from algo.prompt_search.prompts import Tree
from algo.prompt_search.search import Findings, estimate_text, verdict_text
from algo.reports.page_parts import page_environment

PAGE_NAME = "prompts.html"
WINNER_FOLDER = "winner"


def write_tree(folder: Path, tree: Tree) -> None:
    """Write the tree of edits as text, and every prompt as a file."""
    write_whole(folder / "tree.txt", tree.text())
    for candidate in tree.candidates:
        for slot, text in candidate.templates.items():
            write_whole(folder / "prompts" / f"{candidate.number:03d}-{slot}.txt", text.strip() + "\n")


def write_results(folder: Path, title: str, plan: SearchPlan, tree: Tree, findings: Findings) -> dict[str, Path]:
    """Write everything else into a search's folder. Returns the files of the prompts to use from now on, by slot.

    Those are the winner's where it was confirmed, and the first prompt's where not.
    """
    winner = tree.candidates[findings.winner]
    used = winner if findings.confirmed else tree.incumbent
    files = {slot: folder / WINNER_FOLDER / f"{slot}.txt" for slot in used.templates}
    for slot, file in files.items():
        write_whole(file, used.templates[slot].strip() + "\n")
    found = asdict(findings) | {
        "confirmed": findings.confirmed,
        "plan": asdict(plan),
        "candidates": [asdict(candidate) for candidate in tree.candidates],
        "refused": tree.refused,
    }
    write_whole(folder / "result.json", json.dumps(found, ensure_ascii=False, indent=1, default=BaseModel.model_dump))
    estimates = [standing.reward for race in findings.races for standing in race.standings if standing.reward]
    if findings.verdict is not None:
        estimates += [findings.verdict.challenger, findings.verdict.incumbent]
    environment = page_environment(Path(__file__).parent)
    environment.filters["estimate"] = estimate_text
    page = environment.get_template("page.html").render(
        title=title,
        plan=plan,
        tree=tree,
        findings=findings,
        winner=winner,
        verdict=verdict_text(findings, tree),
        rewards={standing.number: standing.reward for race in findings.races for standing in race.standings},
        low=min((one.low for one in estimates), default=0.0),
        high=max((one.high for one in estimates), default=1.0),
    )
    write_whole(folder / PAGE_NAME, page)
    return files


def show_results(tree: Tree, findings: Findings, console: Console) -> None:
    """Print the verdict, and what changed."""
    winner = tree.candidates[findings.winner]
    lines = [verdict_text(findings, tree), *([tree.difference(winner, tree.incumbent)] if findings.verdict else [])]
    console.print("\n".join(lines), highlight=False, markup=False)
