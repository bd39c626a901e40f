"""All Chinese text of the game: what the referee (法官) says, asks and accepts.

- ``names``: what roles, sides, results and choices are called, and the words of a decision line.
- ``quoting``: how values and players' words get into a text without changing what it means.
- ``rules.jinja``, ``guidance.jinja``: the rules, and how to play each role.
- ``system``: the system prompt made of them.
- ``record``: what happened, one line for each event or ballot, and the recap of a game.
- ``history``: the game so far as a conversation of many, for models that are called by messages.
- ``questions``: what a seat is asked, and what it is told about a reply that could not be used.
"""
