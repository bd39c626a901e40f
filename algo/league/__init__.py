"""A pool of the policy's past selves: who is in it, who is met, who beats whom."""
