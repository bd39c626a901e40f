"""How free text is taken apart: labels and data (``sections``), clauses and their scope (``clauses``), the words that
state a choice (``words``, ``choices``). ``runners.werewolf.replies`` puts them together."""
