"""An engine that two threads close at once, as Ctrl-C in mid-update makes them: its call sees its ranks die."""

import threading
from types import SimpleNamespace

from algo.training import engine as engine_module
from algo.training.engine import Engine


def test_nobody_asks_ray_for_anything_after_it_was_shut_down(monkeypatch, tmp_path):
    """Such a request waits for ever, and with it the process."""
    engine = Engine.__new__(Engine)  # without its ranks
    engine._workers, engine._pool, engine._closing = None, SimpleNamespace(pgs=["group"]), threading.Lock()
    engine._ray_directory = tmp_path / "ray"
    calls, second = [], threading.Thread(target=engine.close)

    def remove(group):
        calls.append("remove")
        if not second.is_alive():
            second.start()
            second.join(0.3)  # it may go on only when the first is through

    fake = SimpleNamespace(
        util=SimpleNamespace(remove_placement_group=remove), shutdown=lambda: calls.append("shutdown")
    )
    monkeypatch.setattr(engine_module, "ray", fake)
    engine.close()
    second.join()
    assert calls == ["remove", "shutdown"]
