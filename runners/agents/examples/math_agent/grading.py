"""Grades an answer: the expression after ### must equal the result in value.

Answers are compared by value within 0.01, without sympy, since its parser evaluates Python code, and a model wrote the
answer.
"""

import ast
import operator
from collections.abc import Callable

TOLERANCE = 1e-2

_LONGEST = 100
_LARGEST_POWER = 64
_OPERATIONS: dict[type, Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


def is_right(text: str, result: str) -> bool:
    """Whether a text ends with ### and an expression of the result's value."""
    _, mark, said = text.rpartition("###")
    if not mark:
        return False
    try:
        return abs(value_of(said) - value_of(result)) <= TOLERANCE
    except ValueError:
        return False


def value_of(text: str) -> float:
    """The value of a number, fraction, percentage or expression. Raises ValueError for anything else."""
    text = text.strip().strip("$").rstrip(".").replace(",", "").replace("^", "**").strip()
    percent = text.endswith("%")
    try:
        value = float(_value(ast.parse(text.rstrip("%")[:_LONGEST].strip(), mode="eval").body))
    except (SyntaxError, TypeError, KeyError, ArithmeticError, RecursionError, MemoryError) as error:
        raise ValueError(f"{text!r} has no value: {error}") from error
    return value / 100 if percent else value


def _value(node: ast.expr) -> float:
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Pow):
            if abs(right) > _LARGEST_POWER:
                raise ValueError(f"the exponent {right} is too large")
            return float(left) ** right
        return _OPERATIONS[type(node.op)](left, right)
    if isinstance(node, ast.UnaryOp):
        return _OPERATIONS[type(node.op)](_value(node.operand))
    value = ast.literal_eval(node)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{value!r} is not a number")
    return float(value)
