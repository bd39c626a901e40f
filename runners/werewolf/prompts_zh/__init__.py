"""All Chinese text of the game: the words of the referee (法官).

- ``names``: names of roles, sides, results and choices, and the words of a decision line.
- ``quoting``: inserts values and players' words into a text safely.
- ``rules.jinja``, ``guidance.jinja``: the rules, and how to play each role.
- ``system``: the system prompt made of them.
- ``record``: events, one line for each event or ballot, and the recap of a game.
- ``history``: the game so far as a conversation of many speakers, for models that are called by messages.
- ``questions``: questions to seats, and re-asks after invalid replies.
"""
