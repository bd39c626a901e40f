"""A pool of past selves: members, match shares, results."""
