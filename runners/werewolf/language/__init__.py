"""Chinese as models, people and scripted players write it: replies, speeches, and what a speech gives away.

``lexicon`` has the words; ``sections`` and ``replies`` read a reply; ``speech`` reads what was said aloud; ``saying``
has the sentences of scripted players; ``leaks`` finds wolves that give themselves away.
"""
