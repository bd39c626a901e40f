"""A logistic regression of who wins on who plays, with a prior: strengths by one joint fit, as Bradley and Terry's.

Bradley and Terry, Rank Analysis of Incomplete Block Designs, Biometrika 39, 1952. A draw is half a win. All
coefficients have a normal prior of mean 0 (a ridge), the first a wide one: it is one side's advantage between equals.
"""

import numpy as np
from numpy.typing import NDArray

PRIOR_DEVIATION = 2.0
"""Of every coefficient but the first, in log-odds."""
ADVANTAGE_DEVIATION = 10.0
"""Of the first: it matters only where one side always wins."""
_STEPS = 50
_SETTLED = 1e-8

Floats = NDArray[np.float64]


def fit_logistic(table: Floats, won: Floats, weights: Floats, start: Floats) -> Floats:
    """Coefficients of a logistic regression with the module's prior, the wide one on the first, by Newton's method.

    table: shape (rows, columns). won, weights: shape (rows,). Raises ArithmeticError if it does not settle.
    """
    found = start.copy()
    for _ in range(_STEPS):
        likely = _likely(table, found)
        gradient = table.T @ (weights * (won - likely)) - _penalty(table) * found
        step = np.linalg.solve(_curvature(table, likely, weights), gradient)
        found += step * min(1.0, 5.0 / max(float(np.abs(step).max()), 1e-12))
        if np.abs(step).max() < _SETTLED:
            return found
    raise ArithmeticError(f"the fit of {len(won)} games did not settle in {_STEPS} steps")


def covariance(table: Floats, weights: Floats, found: Floats) -> Floats:
    """Of the fitted coefficients, by Laplace's approximation: shape (columns, columns).

    Arguments as in ``fit_logistic``. Bishop, Pattern Recognition and Machine Learning, 2006, chapter 4.5.1.
    """
    return np.linalg.inv(_curvature(table, _likely(table, found), weights))


def _likely(table: Floats, found: Floats) -> Floats:
    return 1.0 / (1.0 + np.exp(-np.clip(table @ found, -40, 40)))


def _penalty(table: Floats) -> Floats:
    penalty = np.full(table.shape[1], PRIOR_DEVIATION**-2)
    penalty[0] = ADVANTAGE_DEVIATION**-2
    return penalty


def _curvature(table: Floats, likely: Floats, weights: Floats) -> Floats:
    return (table.T * (weights * likely * (1.0 - likely))) @ table + np.diag(_penalty(table))
