"""State machines, guarded transitions, audit, errors, ids and the clock.

No business words here: every other app may import core, core imports none of them.
States: none of its own; `transitions.py` is the only writer of every status column.
"""
