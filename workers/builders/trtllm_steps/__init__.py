"""Steps of the trtllm builder that are programs of ours: run by the supervisor, one process each."""
