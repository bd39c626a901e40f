"""A model that reads failed attempts, names the cause and edits the prompt, within limits of calls and tokens.

Any OpenAI-compatible endpoint. Its replies are in the journal, so a resumed search does not repeat a call. An invalid
edit is rejected with the reason, and its call counts.
"""

import hashlib
import json
import logging
import math
import re
from collections.abc import Sequence
from typing import Any

import openai

from algo.prompt_search.arena import Journal, TaskResult
from algo.prompt_search.prompts import Candidate, Slot, Tree, in_braces

logger = logging.getLogger("algo.find_best_prompt")

_REPLY_TOKENS = 1024
_ATTEMPTS_SHOWN = 3
_ATTEMPT_CHARS = 8000
"""Of all attempts of one call together."""
_CALLS_AN_EDIT = 2

_TEXTS = {
    "en": (
        "You improve a prompt. The prompt is given to a model before each of its tasks; a reward says how well a task "
        "went. Read the attempts that went badly, name in one sentence what went wrong that a better prompt could "
        "prevent, and write the whole prompt anew with that one change.\n"
        "Placeholders that are filled in: {names}. Use these and no others; keep those that the prompt must have: "
        "{required}.\n"
        "Answer in this form and with nothing else:\n<reason>what went wrong</reason>\n"
        "<prompt>the whole prompt</prompt>",
        "The prompt:\n<prompt>\n{prompt}\n</prompt>\n\n{losses}{tried}{problem}",
        "An attempt that earned {reward:g}:\n<attempt>\n{transcript}\n</attempt>\n\n",
        "These edits exist already; make another one:\n{edits}\n\n",
        "Your last answer could not be used: {problem}.\n",
    ),
    "zh": (
        "你要改进一段狼人杀提示词。模型每局开始前都会读到它。请阅读得分最低的对局，用一句话指出改进提示词可以避免的问题，"
        "然后针对这一点改写，写出完整的新提示词。\n"
        "可以使用的占位符：{names}，不能使用别的；必须保留的占位符：{required}。\n"
        "只按下面的格式回答：\n<reason>问题出在哪里</reason>\n<prompt>完整的新提示词</prompt>",
        "现在的提示词：\n<prompt>\n{prompt}\n</prompt>\n\n{losses}{tried}{problem}",
        "得分为{reward:g}的一局：\n<attempt>\n{transcript}\n</attempt>\n\n",
        "下面这些改法已经有了，请换一种：\n{edits}\n\n",
        "你上次的回答不能用：{problem}。\n",
    ),
}
"""By language: instructions; prompt and attempts; one attempt; earlier edits; problem of the last answer."""


class Proposer:
    """Edits prompts.

    calls, tokens (of prompts and replies together): limits. language: of the instructions.
    """

    def __init__(
        self, client: openai.AsyncOpenAI, model: str, calls: int, tokens: int, journal: Journal, language: str
    ):
        self._client = client
        self._model = model
        self._calls = 0
        self._calls_at_most = calls
        self._tokens_left = tokens
        self._journal = journal
        self._texts = _TEXTS[language]
        self._limit = "max_tokens"

    async def edits(
        self, tree: Tree, slot: Slot, leader: Candidate, played: Sequence[TaskResult], count: int
    ) -> list[Candidate]:
        """Up to ``count`` new candidates made from ``leader``, added to the tree; fewer at the limits.

        played: results of the leader. Raises openai.OpenAIError.
        """
        made: list[Candidate] = []
        problem = ""
        for _ in range(_CALLS_AN_EDIT * count):
            if len(made) == count or self._calls == self._calls_at_most or self._tokens_left < _REPLY_TOKENS:
                break
            reply = await self._reply(self.messages(tree, slot, leader, played, problem))
            reason, text = _edit_in(reply)
            templates = dict(leader.templates) | {slot.name: text}
            problem = slot.problem_with(text)
            if not problem and (same := tree.known(templates)):
                problem = f"it is the same prompt as {same.name}"
            if problem:
                tree.rejected.append(f"answer {self._calls} of the proposer, to {leader.name} {slot.name}: {problem}")
                logger.info("%s", tree.rejected[-1])
            else:
                made.append(tree.add(templates, slot.name, leader, reason))
                logger.info("proposed: %s", made[-1].title)
        return made

    async def _reply(self, messages: list[dict[str, str]]) -> str:
        self._calls += 1
        digest = hashlib.blake2b(repr((self._model, messages)).encode(), digest_size=8).hexdigest()
        key = f"proposal/{self._calls}/{digest}"
        if key not in self._journal:
            try:
                try:
                    completion = await self._complete(messages)
                except openai.BadRequestError as error:
                    if self._limit not in str(error) or "max_completion_tokens" not in str(error):
                        raise
                    self._limit = "max_completion_tokens"  # OpenAI's newer models reject max_tokens
                    completion = await self._complete(messages)
            except json.JSONDecodeError as error:
                raise openai.OpenAIError(f"the answer is not JSON: {error}") from error
            try:
                reply = completion.choices[0].message.content if completion.choices else None
            except (AttributeError, LookupError, TypeError) as error:  # a proxy's page, or another API
                raise openai.OpenAIError(f"the answer is no chat completion: {str(completion)[:200]!r}") from error
            reply = reply if isinstance(reply, str) else ""
            reply = reply.encode(errors="replace").decode()  # no file can hold half a surrogate pair
            chars = sum(len(message["content"]) for message in messages) + len(reply)
            counted = getattr(completion.usage, "total_tokens", None)
            tokens = counted if isinstance(counted, int) and counted > 0 else chars
            self._journal.add(key, {"reply": reply, "tokens": tokens})
        self._tokens_left -= self._journal[key]["tokens"]
        return self._journal[key]["reply"]

    async def _complete(self, messages: list[dict[str, str]]) -> Any:
        limit: dict[str, Any] = {self._limit: _REPLY_TOKENS}
        return await self._client.chat.completions.create(
            model=self._model,
            messages=messages,  # type: ignore[arg-type]
            seed=self._calls,
            **limit,
        )

    def messages(
        self, tree: Tree, slot: Slot, leader: Candidate, played: Sequence[TaskResult], problem: str
    ) -> list[dict[str, str]]:
        """The request's messages. problem: of the last answer."""
        rules, body, attempt, earlier, refusal = self._texts
        worst = sorted((one for one in played if not math.isnan(one.reward)), key=lambda one: one.reward)
        worst = worst[:_ATTEMPTS_SHOWN]
        room = _ATTEMPT_CHARS // max(1, len(worst))
        edits = "\n".join(
            tree.difference(child)
            for child in tree.candidates
            if child.slot == slot.name and child.parent == leader.number
        )[-_ATTEMPT_CHARS:]
        question = body.format(
            prompt=leader.templates[slot.name],
            losses="".join(
                attempt.format(reward=one.reward, transcript=(one.transcript or one.summary)[-room:]) for one in worst
            ),
            tried=earlier.format(edits=edits) if edits else "",
            problem=refusal.format(problem=problem) if problem else "",
        )
        names = {"names": in_braces(slot.allowed) or "-", "required": in_braces(slot.required) or "-"}
        return [{"role": "system", "content": rules.format(**names)}, {"role": "user", "content": question}]


def _edit_in(reply: str) -> tuple[str, str]:
    """(reason, prompt) in a reply; a missing part is empty."""
    decided = reply.rpartition("</think>")[2]  # a thought may quote prompts and drafts
    parts = [re.findall(f"<{name}>(.*?)</{name}>", decided, re.DOTALL) for name in ("reason", "prompt")]
    reason, prompt = (found[-1].strip() if found else "" for found in parts)
    return " ".join(reason.split()), prompt
