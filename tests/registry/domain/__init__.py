"""Facts of checkpoints: plain Python, no database."""
