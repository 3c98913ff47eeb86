"""Programs that the load worker starts to bring a checkpoint here, each a process of its own without any database.

`python -m workers.fetching.<step> PLAN.json`; events go to the supervisor (builders/llamacpp_steps/events.py).
"""
