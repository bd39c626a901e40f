"""Chinese replies and speeches of models, people and scripted players.

``lexicon`` has the words; ``sections`` and ``replies`` parse replies; ``speech`` parses speeches; ``saying`` has the
sentences of scripted players; ``leaks`` detects speeches that reveal the wolves.
"""
