"""Text in, verdict out: log rules as data.

domain/rules.py is plain Python. May import core.
States: none."""
