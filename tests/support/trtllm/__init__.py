"""Doubles of TensorRT-LLM's programs, typed from the reference; they import nothing of apps or workers."""
