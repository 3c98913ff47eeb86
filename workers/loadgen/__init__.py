"""The load generator: a child process of the load worker that sends requests and keeps every one's record.

`python -m workers.loadgen PLAN.json` coordinates; its parts (workers.loadgen.part) send. Nothing here uses the
database.
"""
