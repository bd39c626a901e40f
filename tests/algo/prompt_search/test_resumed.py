"""What a search that goes on finds in its journal, with a real hub and a real worker."""

import json

import openai
import pytest
from agentlightning import rollout
from aiohttp import web
from aiohttp.test_utils import TestServer

from algo.prompt_search.arena import Arena, Journal
from algo.prompt_search.prompts import TEMPLATE, Candidate, Slot, Tree, format_names
from algo.prompt_search.proposer import Proposer
from algo.prompt_search.tasks import AgentTasks, Stage
from algo.rollouts.played import AllRolloutsFailed, UnusableRollouts
from algo.rollouts.queue import RolloutQueue
from runners.agents.agent_play import AgentPlay
from runners.agents.lit import LitPlayer
from runners.errors import CannotPlay
from store.agents import AGENTS
from store.schema import PolicyResources, TokenLimits
from tests.support.algo.playing import alive, playing
from tests.support.settings import werewolf_config
from tests.support.werewolf.fakes_api import BROKEN_JSON, HTML, FakeChatApi, text

BASE = PolicyResources(run_name="search", version=0, endpoints=(), model="none")
EASY, HELD_OUT = Stage("template-0", (TEMPLATE,)), Stage("held-out", (TEMPLATE,), held_out=True)
PARTS = text(
    json.dumps(
        {
            "choices": [{"index": 0, "message": {"role": "assistant", "content": [{"type": "text", "text": "x"}]}}],
            "usage": {},
        }
    )
)
GOOD, BAD = {TEMPLATE: "good"}, {TEMPLATE: "bad"}


@rollout
async def scripted_agent(task, prompt_template):
    if task == "hard":
        raise ValueError("no answer")
    return float(prompt_template.format() == "good")


class Play(AgentPlay):
    async def __call__(self, rollout, on_turn):
        if rollout.input["input"] == "lost":
            raise CannotPlay("no server")
        return await super().__call__(rollout, on_turn)


class Searches:
    """Processes of one search, one after the other."""

    def __init__(self, client, folder, hard="hard", bounds=(0.0, 1.0)):
        self._client = client
        self._file = folder / "journal.jsonl"
        self._workload = AgentTasks(
            ["easy"], ["easy", hard], BASE, TokenLimits(context_tokens=100, reply_tokens=10), seed=1, bounds=bounds
        )

    def input_of(self, stage, number):
        (task,) = self._workload.tasks(stage, number, Candidate(0, GOOD))
        return task.input

    async def play(self, stage, *candidates, numbers=(0, 1)):
        """Rewards of each candidate in another process, with the same worker."""
        journal = Journal(self._file)
        queue = RolloutQueue(self._client, AGENTS, werewolf_config(max_attempts=1).rollout)
        try:
            found = await Arena(self._workload, queue, journal, alive, resumed=True).play(stage, candidates, numbers)
        finally:
            journal.close()
        return [[one.reward for one in of_one] for of_one in found]


@pytest.fixture
async def worker(client):
    async with playing(client, Play(client, LitPlayer(scripted_agent))):
        yield


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(("hard", "reward"), [("hard", 0.0), ("lost", float("nan"))])
async def test_a_search_ends_when_no_task_of_a_batch_succeeds_those_that_it_played_before_included(
    client, tmp_path, hard, reward
):
    search, one = Searches(client, tmp_path, hard), Candidate(0, GOOD)
    easy, failing = (next(n for n in range(20) if search.input_of(HELD_OUT, n) == each) for each in ("easy", hard))
    with pytest.raises(AllRolloutsFailed, match="failed 1 of 1"):
        await search.play(HELD_OUT, one, numbers=[failing])
    assert (tmp_path / "journal.jsonl").read_text() == ""  # a fixed agent plays it again
    assert await search.play(HELD_OUT, one, numbers=[easy]) == [[1.0]]
    (rewards,) = await search.play(HELD_OUT, one, numbers=[easy, failing])
    assert rewards == pytest.approx([1.0, reward], nan_ok=True)


@pytest.mark.usefixtures("worker")
async def test_a_reward_belongs_to_a_text_also_where_a_resumed_search_numbers_it_otherwise(client, tmp_path):
    search = Searches(client, tmp_path)
    assert await search.play(EASY, Candidate(1, GOOD)) == [[1.0, 1.0]]
    assert await search.play(EASY, Candidate(1, BAD), Candidate(2, GOOD)) == [[0.0, 0.0], [1.0, 1.0]]
    assert len(await client.query_rollouts()) == 4  # the good text's were not repeated


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    ("prompt", "bounds", "told"),
    [
        (GOOD, (-1.0, 0.5), "reward 1 is not from -1 to 0.5: set the bounds with --reward-range LOW HIGH, or"),
        (BAD, (0.5, 1.0), r"start another search \(--resume never\) with --reward-range LOW HIGH, or"),
    ],
)
async def test_a_reward_out_of_its_bounds_ends_a_search_with_a_remedy(client, tmp_path, prompt, bounds, told):
    with pytest.raises(UnusableRollouts, match=told):
        await Searches(client, tmp_path, bounds=bounds).play(EASY, Candidate(0, prompt))


async def edits_by(url, journal):
    """What a proposer at this address makes of a long prompt."""
    tree, slot = Tree(), Slot(TEMPLATE, frozenset(), frozenset(), format_names)
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as model:
        proposer = Proposer(model, "fake", calls=1, tokens=10_000, journal=journal, language="en")
        return await proposer.edits(tree, slot, tree.add({TEMPLATE: "long"}), [], 1)


async def test_half_a_surrogate_pair_in_an_edit_is_replaced(tmp_path):
    api, journal = FakeChatApi(), Journal(tmp_path / "journal.jsonl")
    api.answer = lambda messages: "<reason>too long \ud83d</reason><prompt>short \ud83d</prompt>"
    (edit,) = await edits_by(f"{await api.start()}/v1", journal)
    await api.stop()
    journal.close()
    assert (edit.reason, edit.templates) == ("too long ?", {TEMPLATE: "short ?"})


async def test_an_edit_is_what_follows_a_thought_also_of_a_model_with_another_name_for_its_limit(tmp_path):
    asked = []

    async def answer(request):
        asked.append(await request.json())
        if "max_tokens" in asked[-1]:
            told = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
            return web.json_response({"error": {"message": told}}, status=400)
        reply = (
            "<think>they gave <prompt>long</prompt>; maybe <prompt>draft</prompt></think>"
            "<reason>too long</reason>\n<prompt>short</prompt>"
        )
        return web.json_response({"choices": [{"message": {"role": "assistant", "content": reply}}]})

    api, journal = TestServer(web.Application()), Journal(tmp_path / "journal.jsonl")
    api.app.router.add_post("/v1/chat/completions", answer)
    await api.start_server()
    (edit,) = await edits_by(str(api.make_url("/v1")), journal)
    await api.close()
    journal.close()
    assert (edit.reason, edit.templates) == ("too long", {TEMPLATE: "short"})
    assert [sorted({"max_tokens", "max_completion_tokens"} & set(body)) for body in asked] == [
        ["max_tokens"],
        ["max_completion_tokens"],
    ]


@pytest.mark.parametrize("answer", [HTML, BROKEN_JSON, text('{"choices": [{"index": 0}]}'), PARTS])
async def test_an_odd_answer_of_the_proposer_is_an_error_of_its_server_or_no_edit(tmp_path, answer):
    api, journal = FakeChatApi(), Journal(tmp_path / "journal.jsonl")
    api.faults = [answer]
    asking = edits_by(f"{await api.start()}/v1", journal)
    if answer is PARTS:
        assert await asking == [] and all(entry["tokens"] > 0 for entry in journal.values())
    else:
        with pytest.raises(openai.OpenAIError):
            await asking
    await api.stop()
    journal.close()
