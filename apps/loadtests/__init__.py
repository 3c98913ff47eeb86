"""Load tests: scenarios, runs with every request's record, studies that compare runs, quality of builds, its gates.

May import streaming, serving, telemetry and what lies below, never chat, gateway or workers. The generator is a child
process of the load worker (workers/loadgen). States: states.py (LoadRun, Study)."""
