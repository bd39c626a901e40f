"""Names of tau2's tasks, and lessons for tiny models; ``python -m`` this module writes them.

Tasks, prompts, tools and their results are tau2's. Of the mock domain's nine tasks three are held out, which differ
from others in their initial state; the airline split is tau2's. The lessons are dialogues that tau2's orchestrator ran
between two scripts: a customer who follows the scenario, and an agent that mostly takes a wrong action.
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tau2.agent.llm_agent import LLMAgent
from tau2.data_model.message import AssistantMessage, ToolCall, ToolMessage, UserMessage
from tau2.data_model.tasks import Task
from tau2.domains.airline import environment as airline
from tau2.domains.mock import environment as mock
from tau2.orchestrator.orchestrator import Orchestrator
from tau2.user.user_simulator import UserSimulator
from tau2.utils.llm_utils import to_litellm_messages

from runners.agents.examples.writing import write_data

HERE = Path(__file__).parent
SEED = 22
LESSONS = 1200

HELD_OUT = {
    "create_task_1_with_env_assertions",
    "update_task_with_initialization_actions",
    "update_task_with_history_and_env_assertions",
}
RIGHT_ACTION = 0.45
"""Share of lessons in which the agent takes the right action."""

_CREATE = ("create_task", {"user_id": "user_1", "title": "Important Meeting"})
_TRANSFER = ("transfer_to_human_agents", {"summary": "The user wants to delete all tasks."})
_ACTIONS = [
    _CREATE,
    _TRANSFER,
    *(
        ("update_task_status", {"task_id": task_id, "status": status})
        for task_id in ("task_1", "task_2")
        for status in ("completed", "pending")
    ),
]
_DONE = ("It is done. Can I help you with anything else?", "Done. Is there anything else?")
_TRANSFERRED = "You are being transferred to a human agent. Please hold on."
_PRAISE = "You keep your work in very good order."
_REQUESTS = {
    "create": (
        "Please create a task called 'Important Meeting' for user_1.",
        "I need a new task for user_1, 'Important Meeting'.",
    ),
    "update": ("Please mark {task} as completed.", "{task} is finished. Can you set it to completed?"),
    "delete": ("I want to delete all my current tasks.", "Please delete all of my tasks."),
}


def tasks(domain: str, held_out: bool) -> list[dict[str, str]]:
    """Rows of ``domain`` and ``task_id`` of the held-out or the training part."""
    if domain == "airline":
        names = airline.get_tasks_split()["test" if held_out else "train"]
    elif held_out:
        names = sorted(HELD_OUT)
    else:
        names = [task.id for task in mock.get_tasks() if task.id not in HELD_OUT]
    return [{"domain": domain, "task_id": str(name)} for name in names]


class ScriptedAgent(LLMAgent):
    """Takes one action; its other messages are polite phrases."""

    def play(self, action: tuple[str, dict[str, Any]], chance: random.Random) -> "ScriptedAgent":
        self.action, self.chance, self.acted, self.given = action, chance, False, None
        return self

    def generate_next_message(self, message: Any, state: Any) -> tuple[AssistantMessage, Any]:
        """tau2's interface: the reply and the new state."""
        self.given = len(state.messages) if self.given is None else self.given
        state.messages.append(message)
        if isinstance(message, ToolMessage):
            text = _TRANSFERRED if self.action is _TRANSFER else self.chance.choice(_DONE)
            reply = AssistantMessage(role="assistant", content=text, cost=0.0)
        elif not self.acted:
            self.acted = True
            name, arguments = self.action
            call = ToolCall(id=f"call_{name}", name=name, arguments=arguments)
            reply = AssistantMessage(role="assistant", content="", tool_calls=[call], cost=0.0)
        else:
            reply = AssistantMessage(role="assistant", content=_PRAISE, cost=0.0)
        state.messages.append(reply)
        return reply, state


class ScriptedUser(UserSimulator):
    """Makes the scenario's request once."""

    def play(self, request: str, wants_praise: bool) -> "ScriptedUser":
        self.given = None
        self.script = [request, *(["Thank you. And now I would like a compliment."] if wants_praise else [])]
        return self

    def generate_next_message(self, message: Any, state: Any) -> tuple[UserMessage, Any]:
        """tau2's interface: the message and the new state."""
        self.given = len(state.messages) if self.given is None else self.given
        state.messages.append(message)
        if message.content == _TRANSFERRED:
            text = "###TRANSFER###"
        else:
            text = self.script.pop(0) if self.script else "###STOP###"
        reply = UserMessage(role="user", content=text, cost=0.0)
        state.messages.append(reply)
        return reply, state


def dialogue(task: Task, right: bool, chance: random.Random) -> tuple[Any, list[dict[str, Any]]]:
    """(the simulation, for tau2's grading; a lesson for the agent and one for the user)."""
    environment = mock.get_environment()
    kind = "delete" if task.id.startswith("impossible") else task.id.partition("_")[0]
    task_id = "task_1" if task.id == "update_task_1" else "task_2"
    wanted = {
        "create": _CREATE,
        "delete": _TRANSFER,
        "update": ("update_task_status", {"task_id": task_id, "status": "completed"}),
    }[kind]
    action = wanted if right else chance.choice([other for other in _ACTIONS if other != wanted])
    agent = ScriptedAgent(environment.get_tools(), environment.get_policy()).play(action, chance)
    request = chance.choice(_REQUESTS[kind]).format(task=task_id)
    user = ScriptedUser(instructions=str(task.user_scenario)).play(request, "compliment" in str(task.user_scenario))
    orchestrator = Orchestrator("mock", agent, user, environment, task)
    simulation = orchestrator.run()
    state = orchestrator.agent_state
    tools = [tool.openai_schema for tool in environment.get_tools()]
    of_agent = _lesson(state.system_messages + state.messages, agent.given + 1, tools)
    state = orchestrator.user_state
    return simulation, [of_agent, _lesson(state.system_messages + state.flip_roles(), user.given + 1, [])]


def _lesson(messages: Any, given: int, tools: list[dict[str, Any]]) -> dict[str, Any]:
    """given: initial messages, which are not imitated."""
    chat = json.loads(json.dumps(to_litellm_messages(messages)))
    chat = [{name: value for name, value in message.items() if value is not None} for message in chat]
    for message in chat[:given]:
        if message["role"] == "assistant":
            message["weight"] = 0
    while chat[-1]["role"] != "assistant":
        chat.pop()
    return {"messages": chat, "tools": tools}


def lessons() -> Iterator[dict[str, Any]]:
    """Conversations in OpenAI's fine-tuning format, alternating agent and user."""
    chance = random.Random(SEED)
    all_tasks = mock.get_tasks()
    for _ in range(LESSONS // 2):
        _, both = dialogue(chance.choice(all_tasks), chance.random() < RIGHT_ACTION, chance)
        yield from both


if __name__ == "__main__":
    files = {
        HERE / f"{prefix}{name}.jsonl": tasks(domain, held_out=name == "val")
        for domain, prefix in (("mock", ""), ("airline", "airline_"))
        for name in ("train", "val")
    }
    write_data(files, lessons())
