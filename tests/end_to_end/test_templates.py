"""vLLM and plain PyTorch agree on log-probs under every chat template; the pretrained model where it is installed."""

import pytest
import torch
from transformers import AutoTokenizer

from algo.serving.server_group import ServerGroup
from runners.policy.client import PolicyClient
from store.schema import TRAINED_POLICY
from tests.support.algo.fake_vllm import serving_config
from tests.support.chat_templates import FOREIGN, chat_tokens, with_template
from tests.support.small_models import load_model
from tests.support.tasks import HERE

# Shares the vLLM of test_league.py and test_lag.py, which push weights to it.
pytestmark = [pytest.mark.xdist_group("machine"), pytest.mark.timeout(900)]

WINDOW = 512
"""Tokens that a layer of the pretrained model with a sliding window looks back on."""


@pytest.fixture
async def served(request, lend_vllm, tiny_model, tmp_path):
    """(endpoint of a vLLM, its model's folder): the pretrained model where it is installed, else the tiny one."""
    try:
        folder = request.getfixturevalue("real_model")
    except pytest.skip.Exception:
        yield f"{await lend_vllm(tiny_model)}/v1", tiny_model
        return
    config = serving_config(tmp_path, folder, kv_cache_gb=0.25, start_timeout_seconds=900)
    async with await ServerGroup.open(config) as serving:
        yield serving.endpoints[0], folder


async def test_vllms_log_probs_are_those_of_a_plain_forward_pass_under_every_template(served):
    """Three turns under each template, sampled by vLLM at its temperature, from ids that grow beyond the window."""
    temperature, question = 0.7, {"role": "user", "content": "【法官】3号，请投票放逐一人，可选：1号、2号、弃票。"}
    system = {"role": "system", "content": "你在玩狼人杀。你是3号。" * (WINDOW // 4)}
    endpoint, folder = served
    tokenizer, model = AutoTokenizer.from_pretrained(folder), load_model(folder)
    server = PolicyClient(endpoint, TRAINED_POLICY, temperature, HERE)
    try:
        for family in (None, *FOREIGN):
            for thinking in [False, True] if family == "thinking" else [False]:
                tokens = chat_tokens(with_template(tokenizer, FOREIGN.get(family)), thinking)
                server.stop_token_ids = (tokens.end_of_turn,)
                ids, expected, returned = await tokens.first_prompt([system, question]), [], []
                for turn in range(3):
                    reply = await server.complete(ids, 24, seed=turn)
                    where = range(len(ids), len(ids) + len(reply.token_ids))
                    ids = [*ids, *reply.token_ids]
                    with torch.no_grad():
                        found = torch.log_softmax(model(torch.tensor([ids])).logits[0] / temperature, -1)
                    expected += [found[at - 1, ids[at]].item() for at in where]
                    returned += reply.logprobs
                    ids += await tokens.next_prompt(reply.token_ids, [question])
                assert len(ids) > WINDOW and len(expected) >= 3 and max(map(abs, expected)) > 0.01
                assert returned == pytest.approx(expected, abs=1e-4), (family, thinking)
    finally:
        await server.close()
