"""Checkpoints that come from elsewhere: a hub's repository or an archive.

A row waits as `registered`; the load worker claims it (attempts.py), a child process of it fetches or unpacks, and
the worker inspects what was published. `selection.py` is plain Python: the child uses it too. May import what
apps.registry may; states are in apps/registry/states.py.
"""
