"""Roles, permissions and API tokens.

May import core and realtime. roles.py says which role may do what.
States: none."""
