"""Plain Python: Triton model configuration, model repositories, batching facts. No Django."""
