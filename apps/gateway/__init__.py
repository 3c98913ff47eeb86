"""The OpenAI-compatible API under /v1/: keys, limits, priorities, routing. Raw ASGI in a process of its own.

May import telemetry, streaming and what lies below. Nothing in a request's path reads the database: keys and routes
are a Table in memory (domain/facts.py), refreshed by push and by a version poll.
States: none."""
