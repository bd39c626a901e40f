"""Saved batches of a run that the page shows while the run goes on."""

import json
from types import SimpleNamespace

from runners.werewolf.web.token_rows import TokenRows


def test_a_batch_that_a_resumed_run_writes_anew_is_read_anew(tmp_path):
    batch = tmp_path / "batches" / "step-0006.jsonl"
    batch.parent.mkdir()
    rows = TokenRows(SimpleNamespace(run_of=lambda _: tmp_path), None)
    game = SimpleNamespace(about={"run": "r", "game": "g"})

    def write(*seats):
        lines = [json.dumps({"task_id": "g", "actor": f"seat {seat:02d}", "segment": 0}) + "\n" for seat in seats]
        batch.write_text("".join(lines) + '{"task_id": "cut')

    for seats in ((1, 2), (3, 4, 5), (6,)):  # longer and shorter than before
        write(*seats)
        assert {seat for seat, _ in rows._places(game)} == set(seats)
