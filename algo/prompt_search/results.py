"""What a search leaves behind: tables, a page, the tree of edits, and the winner as files that a run can be given."""

import json
from dataclasses import asdict
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from algo.evaluation.page import page_environment
from algo.machine.whole_files import write_whole
from algo.prompt_search.candidates import Candidate, Tree
from algo.prompt_search.intervals import Interval
from algo.prompt_search.plan import SearchPlan
from algo.prompt_search.search import ENDINGS, Findings, verdict_text

PAGE_NAME = "prompts.html"
WINNER_FOLDER = "winner"


def write_results(folder: Path, title: str, plan: SearchPlan, tree: Tree, findings: Findings) -> dict[str, Path]:
    """Write everything into a search's folder. Returns the files of the prompts to use from now on, by slot.

    Those are the winner's where it was confirmed, and the first prompt's where not.
    """
    write_tree(folder, tree)
    used = tree.candidates[findings.winner] if findings.confirmed else tree.incumbent
    files = {slot: folder / WINNER_FOLDER / f"{slot}.txt" for slot in used.templates}
    for slot, file in files.items():
        write_whole(file, used.templates[slot].strip() + "\n")
    found = asdict(findings) | {
        "confirmed": findings.confirmed,
        "saved": findings.saved,
        "plan": asdict(plan),
        "candidates": [asdict(candidate) for candidate in tree.candidates],
        "refused": tree.refused,
    }
    write_whole(folder / "result.json", json.dumps(found, ensure_ascii=False, indent=1))
    write_whole(folder / PAGE_NAME, render_page(title, plan, tree, findings))
    return files


def write_tree(folder: Path, tree: Tree) -> None:
    """Write the tree of edits as text, and every prompt as a file."""
    write_whole(folder / "tree.txt", tree.text())
    for candidate in tree.candidates:
        for slot, text in candidate.templates.items():
            write_whole(folder / "prompts" / f"{candidate.number:03d}-{slot}.txt", text.strip() + "\n")


def show_results(tree: Tree, findings: Findings, console: Console) -> None:
    """Print the races and the verdict."""
    for race in findings.races:
        table = Table(title=f"Race {race.stage}", title_justify="left", box=SIMPLE)
        for column in ("prompt", "from", "tasks", "mean reward (95 %)", ""):
            table.add_column(column)
        for entrant in sorted(race.entrants, key=lambda one: (one.number != race.winner, -one.reward.count)):
            told = entrant.left or f"goes on, {ENDINGS[race.ending]}"
            parent = tree.candidates[entrant.number].parent
            came_from = "–" if parent is None else f"#{parent}"
            table.add_row(f"#{entrant.number}", came_from, str(entrant.reward.count), str(entrant.reward), told)
        console.print(table)
    winner = tree.candidates[findings.winner]
    console.print(verdict_text(findings, tree.incumbent, winner), highlight=False, markup=False)
    if findings.verdict is not None:
        console.print(tree.difference(winner, tree.incumbent), highlight=False, markup=False)


def render_page(title: str, plan: SearchPlan, tree: Tree, findings: Findings) -> str:
    """The page's HTML, which needs no network and no other file."""
    winner = tree.candidates[findings.winner]
    environment = page_environment(Path(__file__).parent)
    environment.filters["position"] = _position
    low, high = _bounds(findings)
    return environment.get_template("page.html").render(
        title=title,
        plan=plan,
        tree=tree,
        findings=findings,
        winner=winner,
        verdict=verdict_text(findings, tree.incumbent, winner),
        difference=tree.difference(winner, tree.incumbent) if winner is not tree.incumbent else "",
        branches=[_branch(tree, candidate) for candidate in _in_order(tree)],
        rewards={entrant.number: entrant.reward for race in findings.races for entrant in race.entrants},
        endings=ENDINGS,
        low=low,
        high=high,
    )


def _position(value: float, low: float, high: float) -> str:
    """Where a value lies between two, in percent."""
    return f"{100 * (value - low) / (high - low):.1f}" if high > low else "0"


def _bounds(findings: Findings) -> tuple[float, float]:
    """Over all rewards' intervals, for the bars."""
    intervals: list[Interval] = [entrant.reward for race in findings.races for entrant in race.entrants]
    if findings.verdict is not None:
        intervals += [findings.verdict.challenger, findings.verdict.incumbent]
    return min((one.low for one in intervals), default=0.0), max((one.high for one in intervals), default=1.0)


def _in_order(tree: Tree) -> list[tuple[int, Candidate]]:
    """(depth, candidate), every candidate behind its parent."""
    ordered: list[tuple[int, Candidate]] = []

    def visit(candidate: Candidate, depth: int) -> None:
        ordered.append((depth, candidate))
        for child in tree.candidates:
            if child.parent == candidate.number:
                visit(child, depth + 1)

    for candidate in tree.candidates:
        if candidate.parent is None:
            visit(candidate, 0)
    return ordered


def _branch(tree: Tree, placed: tuple[int, Candidate]) -> dict[str, object]:
    depth, candidate = placed
    return {"depth": depth, "candidate": candidate, "difference": tree.difference(candidate)}
