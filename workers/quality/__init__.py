"""Quality runs: a build against its source, each way a child process of the load worker.

`logits` runs llama.cpp on both files under the serving environment's Python; `answers` asks two deployments. Both
append rows to `rows.jsonl` (apps/loadtests/domain/quality.py reads it), so an attempt goes on where one stopped.
"""
