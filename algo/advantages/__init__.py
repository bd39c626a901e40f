"""From rewards to one advantage a token: estimators, baselines, credit, corrections, one rule a file."""
