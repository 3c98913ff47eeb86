"""What chat and gateway share: token sources, text streams, chat templates, timings.

May import serving and everything below it. Closing a token source cancels the engine's request.
States: none."""
