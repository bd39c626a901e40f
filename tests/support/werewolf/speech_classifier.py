"""Tells wolves from good seats by the characters of one speech: logistic regression on runs of 1 to 4 characters."""

from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np

LONGEST_RUN = 4
FEATURES = 4000
STEPS = 150


def runs_of(text: str) -> set[str]:
    return {text[at : at + size] for size in range(1, LONGEST_RUN + 1) for at in range(len(text) - size + 1)}


class SpeechClassifier:
    """Trained on speeches and whether a wolf said each."""

    def __init__(self, texts: Sequence[str], by_wolf: Sequence[bool], ridge: float = 1e-3):
        found = [runs_of(text) for text in texts]
        counts = Counter(run for runs in found for run in runs)
        self._columns = {run: number for number, (run, _) in enumerate(counts.most_common(FEATURES))}
        features, labels = self._matrix(found), np.asarray(by_wolf, np.float32)
        self._weights, self._bias = np.zeros(features.shape[1], np.float32), np.float32(0)
        # Adam on the whole set, both classes weighing the same.
        share = labels.mean()
        weight = np.where(labels == 1, 0.5 / share, 0.5 / (1 - share)) / len(labels)
        first, second = np.zeros_like(self._weights), np.zeros_like(self._weights)
        for step in range(1, STEPS + 1):
            wrong = (1 / (1 + np.exp(-(features @ self._weights + self._bias))) - labels) * weight
            slope = features.T @ wrong + ridge * self._weights
            first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
            self._weights -= 0.05 * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
            self._bias -= 0.5 * wrong.sum()

    def scores(self, texts: Sequence[str]) -> np.ndarray:
        """The higher, the more each sounds like a wolf."""
        return self._matrix([runs_of(text) for text in texts]) @ self._weights + self._bias

    def _matrix(self, found: Sequence[Collection[str]]) -> np.ndarray:
        matrix = np.zeros((len(found), len(self._columns)), np.float32)
        for row, runs in enumerate(found):
            matrix[row, [self._columns[run] for run in runs if run in self._columns]] = 1
        return matrix
