"""``make bench``: speeds and costs as ratios, both sides measured in one run on one machine."""
