"""The algorithm: from rollouts in the hub to an update of the policy. Never imports ``runners``."""

import store as _store  # sets the environment that agentlightning's import reads
