"""From rewards to advantages per token. Read ``baseline``, ``credit``, ``correction``, then ``estimators``."""
