"""What a search leaves behind: a page, the tree of edits, and the winner as files that a run can be given."""

import json
from dataclasses import asdict
from pathlib import Path

from pydantic import BaseModel

from algo.evaluation.page import Page, Section, Table, value_text
from algo.machine.whole_files import write_whole
from algo.prompt_search.plan import SearchPlan
from algo.prompt_search.prompts import Tree
from algo.prompt_search.search import Findings

PAGE_NAME = "prompts.html"
_LEAD = (
    "{spent} of {budget} rollouts were spent, {failed} of them failed. Intervals are 95 % (bootstrap over tasks). "
    "Races choose, on tasks of their own; only the held-out tasks, whose number is fixed before they are played, "
    "decide whether the choice is called better."
)


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
    used = tree.candidates[findings.winner] if findings.confirmed else tree.incumbent
    files = {slot: folder / "winner" / f"{slot}.txt" for slot in used.templates}
    for slot, file in files.items():
        write_whole(file, used.templates[slot].strip() + "\n")
    found = asdict(findings) | {
        "confirmed": findings.confirmed,
        "plan": asdict(plan),
        "candidates": [asdict(candidate) for candidate in tree.candidates],
        "refused": tree.refused,
    }
    write_whole(folder / "result.json", json.dumps(found, ensure_ascii=False, indent=1, default=BaseModel.model_dump))
    _page(title, plan, tree, findings).write(folder / PAGE_NAME)
    return files


def _page(title: str, plan: SearchPlan, tree: Tree, findings: Findings) -> Page:
    winner, verdict, sections = tree.candidates[findings.winner], findings.verdict, []
    if verdict is not None:
        names = (f"{winner.name}, first in the races", f"{tree.incumbent.name}, the first", "difference")
        means = (verdict.challenger, verdict.incumbent, verdict.difference)
        rows = [(name, str(verdict.tasks), value_text(mean, 2)) for name, mean in zip(names, means, strict=True)]
        tables = [Table("Held-out tasks", ("prompt", "tasks", "mean reward"), rows)]
        texts = [("What changed", tree.difference(winner, tree.incumbent))]
        for one, played in zip((tree.incumbent, winner), findings.examples or (), strict=False):
            transcript = played.transcript or "(no model call went through the hub's runner)"
            texts.append((f"One of them with {one.name}: {played.reward:.2f}", f"{played.summary}\n\n{transcript}"))
        sections.append(Section("Held-out tasks", tables=tables, texts=texts))
    rows = [
        (f"{one.race} #{one.number}", str(one.tasks), value_text(one.reward, 2), "yes" if one.won else "")
        for one in findings.races
    ]
    sections.append(Section("Races", tables=[Table("", ("race and prompt", "tasks", "mean reward", "won"), rows)]))
    prompts = [
        (f"{'– ' * depth}{one.name} {one.reason}", tree.difference(one) or "what is built in")
        for depth, one in tree.in_order()
    ]
    sections.append(Section("All prompts", texts=prompts, lead=[f"Refused: {one}" for one in tree.refused]))
    lead = [_LEAD.format(spent=findings.spent, budget=plan.budget, failed=findings.failed)]
    return Page(f"The best prompt of {title}", sections, findings.sentence(), findings.confirmed, lead)
