"""The service: POST /chat answers a question, with the model at the address in the request.

A usual program with the OpenAI Agents SDK, in its own environment (``requirements.txt``). For training it only takes
the model's address and name from the request.
"""

import argparse
import ast
import operator

import uvicorn
from agents import Agent, ModelSettings, OpenAIResponsesModel, RunConfig, Runner, function_tool
from agents.exceptions import AgentsException
from fastapi import FastAPI
from openai import AsyncOpenAI
from pydantic import BaseModel

INSTRUCTIONS = "Solve the math problem with the calculator. Output the answer after ###"
LONGEST_EXPRESSION = 100
OPERATIONS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
}

app = FastAPI()
# One client for all requests, since each client reads the system's certificates.
client = AsyncOpenAI(api_key="none", base_url="http://127.0.0.1", max_retries=0)


class Question(BaseModel):
    """A question, and the model to use."""

    question: str
    base_url: str
    model: str
    temperature: float = 1.0
    max_tokens: int | None = None


@function_tool
def calculate(expression: str) -> str:
    """Calculate an arithmetic expression."""
    try:
        return f"{value_of(ast.parse(expression[:LONGEST_EXPRESSION], mode='eval').body):.12g}"
    except (SyntaxError, TypeError, KeyError, ValueError, ArithmeticError, RecursionError, MemoryError) as error:
        return f"error: {type(error).__name__}"


def value_of(node: ast.expr) -> float:
    """The value of an expression of numbers, + - * / and brackets."""
    if isinstance(node, ast.BinOp):
        return OPERATIONS[type(node.op)](value_of(node.left), value_of(node.right))
    if isinstance(node, ast.UnaryOp):
        return OPERATIONS[type(node.op)](value_of(node.operand))
    return float(ast.literal_eval(node))


@app.post("/chat")
async def chat(question: Question) -> dict[str, str]:
    """Answer a question; the text is empty if the agent fails."""
    model = OpenAIResponsesModel(question.model, client.with_options(base_url=question.base_url))
    settings = ModelSettings(temperature=question.temperature, max_tokens=question.max_tokens)
    agent = Agent("Assistant", instructions=INSTRUCTIONS, model=model, model_settings=settings, tools=[calculate])
    try:
        result = await Runner.run(agent, question.question, max_turns=4, run_config=RunConfig(tracing_disabled=True))
    except AgentsException as error:  # too many turns, a tool that does not exist
        return {"text": "", "error": f"{type(error).__name__}: {error}"}
    return {"text": str(result.final_output)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=9000)
    uvicorn.run(app, host="127.0.0.1", port=parser.parse_args().port, log_level="warning")
