"""Programs that the llamacpp builder plans, each run as `python -P -m workers.builders.llamacpp_steps.<name>`.

They run under the serving environment's Python (numpy, gguf, xllamacpp): no Django, no pydantic. What they have to
say goes as JSON lines to the descriptor that INFLIGHT_EVENTS_FD names (events.py); what they print is the log.
"""
