"""Prompts in files, the tree of edits, the journal."""

import pytest

from algo.prompt_search.candidates import Tree, read_prompts
from algo.prompt_search.journal import Journal
from configs.section import ConfigError


def test_prompts_are_lines_or_stand_between_dashes_or_in_a_folder(tmp_path):
    file = tmp_path / "prompts.txt"
    file.write_text("one {q}\n\ntwo {q}\n")
    assert [text for _, text in read_prompts(file)] == ["one {q}", "two {q}"]
    file.write_text("one\nmore {q}\n---\ntwo {q}\n")
    assert [text for _, text in read_prompts(file)] == ["one\nmore {q}", "two {q}"]
    assert [text for _, text in read_prompts(tmp_path)] == [file.read_text().strip()]
    file.write_text("\n")
    with pytest.raises(ConfigError, match="holds no prompt"):
        read_prompts(file)
    with pytest.raises(ConfigError, match="cannot read"):
        read_prompts(tmp_path / "none.txt")


def test_a_tree_shows_parent_reason_and_difference_and_has_each_prompt_once():
    tree = Tree()
    first = tree.add({"template": "a\nb"})
    child = tree.add({"template": "a\nc"}, "template", first, "b was wrong")
    assert tree.add({"template": "a\nc \n"}, "template", first, "again") is child
    tree.add({"template": "a\nd"}, "template", child, "c was wrong too")
    text = tree.text()
    assert "    #1  b was wrong" in text and "        #2  c was wrong too" in text
    assert tree.difference(tree.candidates[2], first).splitlines()[-2:] == ["-b", "+d"]


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
    assert (journal.get("b"), len(journal)) == ("x", 3)
    with pytest.raises(ConfigError, match="other budget: resume"):
        journal.check_plan({"budget": 11})
    journal.close()
