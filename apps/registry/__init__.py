"""Checkpoints: source weights as the vendor ships them, registered, inspected, never changed.

May import core, realtime, accounts. domain/ reads GGUF and config.json headers without loading weights.
States: states.py (Checkpoint)."""
