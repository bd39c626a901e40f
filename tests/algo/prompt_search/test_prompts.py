"""Prompts in files, the tree of edits, the journal."""

import pytest

from algo.prompt_search.arena import Journal
from algo.prompt_search.prompts import Tree, agent_prompts
from configs.section import ConfigError


def texts_in(path):
    return [one.templates["template"] for one in agent_prompts(path)[1].candidates]


def test_prompts_are_lines_or_stand_between_dashes_or_in_a_folder(tmp_path):
    file = tmp_path / "prompts.txt"
    file.write_text("one {q}\n\ntwo {q}\n")
    assert texts_in(file) == ["one {q}", "two {q}"]
    file.write_text("one\nmore {q}\n---\ntwo {q}\n")
    assert texts_in(file) == ["one\nmore {q}", "two {q}"]
    assert texts_in(tmp_path) == [file.read_text().strip()]
    file.write_text("\n")
    with pytest.raises(ConfigError, match="holds no prompt"):
        texts_in(file)
    with pytest.raises(ConfigError, match="cannot read"):
        texts_in(tmp_path / "none.txt")


def test_a_tree_has_each_text_that_a_model_reads_once():
    tree = Tree()
    first = tree.add({"template": "a\nb"})
    child = tree.add({"template": "a\nc"}, "template", first, "b was wrong")
    assert tree.add({"template": "a\nc \n"}, "template", first, "again") is child
    tree.add({"template": "a\nd"}, "template", child, "c was wrong too")
    assert tree.difference(tree.candidates[2], first).splitlines()[-2:] == ["-b", "+d"]
    brief, full = "{seat}{role}{reply_format}", "{seat}{role}{reply_format}{guidance}"
    game = Tree()
    frame = game.add({"system": brief})
    assert game.add({"system": brief, "wolf": "冲"}, "wolf", frame) is frame
    assert game.add({"system": full, "wolf": "冲"}, None, frame) is not game.add({"system": full}, "system", frame)


def test_a_journal_drops_the_line_that_a_crash_cut_off_and_goes_on(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.check_plan({"budget": 10})
    journal.put("a", {"reward": 1.0})
    journal.close()
    with path.open("ab") as file:
        file.write('{"key": "b", "answer": "狼'.encode()[:-1])
    journal = Journal(path)
    assert journal.get("a") == {"reward": 1.0} and journal.get("b") is None
    journal.put("b", "x")
    journal.close()
    journal = Journal(path)
    assert journal.get("b") == "x"
    with pytest.raises(ConfigError, match="other budget: resume"):
        journal.check_plan({"budget": 11})
    journal.close()
