"""Nodes, GPUs (or CPU slots) and their leases; heartbeats.

May import core, realtime, accounts. Leases are exclusive or by share and always carry an end.
States: states.py (Node)."""
