"""The doctor: what does not fit, does not answer or is not there is a problem with its remedy, and nothing hangs."""

import asyncio
import socket
import threading

from algo import doctor
from algo.doctor import OK, PROBLEM, WARNING, examine, main, parse_arguments, subject_of
from configs.loading import CONFIG_DIR
from store.auth import TOKEN_VARIABLE
from tests.support.hub.hub_process import HubProcess
from tests.support.processes import exit_status

ROOT = CONFIG_DIR.parent


async def findings(*arguments):
    """What is found, by check."""
    subject = subject_of(parse_arguments([*arguments]))
    found = {}
    for level, what, text in await asyncio.to_thread(lambda: [*examine(subject)]):
        found.setdefault(what, []).append((level, text))
    return found


async def test_the_kind_of_a_hub_and_its_token(hub, tmp_path, monkeypatch):
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    ((level, text),) = (await findings("--store", hub.url))["hub"]
    assert level == OK and "stock" in text and "no token" in text
    monkeypatch.chdir(tmp_path)  # a runner's machine, without a model
    assert (await findings("--store", hub.url))["model"][0][0] == WARNING

    (tmp_path / "token").write_text("secret-of-the-hub")
    ours = await HubProcess(tmp_path, "--token-file", str(tmp_path / "token")).start()
    try:
        ((level, text),) = (await findings("--store", ours.url))["hub"]
        assert level == PROBLEM and "requires a token" in text
        monkeypatch.setenv(TOKEN_VARIABLE, "secret-of-the-hub")
        ((level, text),) = (await findings("--store", ours.url))["hub"]
        assert level == OK and "of this project" in text and "accepts ours" in text and "secret" not in text
    finally:
        ours.kill()


async def test_a_published_folder_has_its_model_and_an_address_with_a_password_is_not_shown(monkeypatch):
    found = await findings("--config", str(ROOT / "models" / "wolves"), "--endpoint", "http://u:secret@127.0.0.1:1")
    assert found["model"][0][0] == OK
    ((level, text),) = found["vLLM"]
    assert level == PROBLEM and "no user, password" in text and "secret" not in text


async def test_an_address_that_never_answers_is_a_problem():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        policies = "policies={wolves: {side: wolf}, others: {}}"
        found = await findings("--store", url, "--endpoint", f"{url}/v1", "--set", policies)
    assert [level for level, _ in found["hub"] + found["vLLM"]] == [PROBLEM, PROBLEM]
    assert len(found["port"]) == 2
    assert "agl store" in found["hub"][0][1] and "algo.serve" in found["vLLM"][0][1]
    assert (await findings())["hub"][0][0] == WARNING  # nobody named one


def test_checks_that_hang_or_fail_are_problems_and_the_exit_status_says_so(monkeypatch, capsys):
    released = threading.Event()

    def hangs(_):
        yield OK, "before"
        released.wait()

    monkeypatch.setattr(doctor, "CHECKS", {"hub": hangs, "GPU": lambda _: 1 / 0, "disk": lambda _: [(OK, "fine")]})
    monkeypatch.setattr(doctor, "DEADLINE_SECONDS", 1.0)
    assert main([]) == 1
    released.set()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [OK, PROBLEM, PROBLEM, OK]
    assert "no answer within" in lines[1] and "ZeroDivisionError" in lines[2]
    monkeypatch.setattr(doctor, "CHECKS", {"disk": lambda _: [(WARNING, "small")]})
    assert main([]) == 0
    assert exit_status(main, ["--set", "run.stps=1"]) == 2
