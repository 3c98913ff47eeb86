"""How Inflight is brought up on a machine. Standard library only: it runs before any package is installed."""
