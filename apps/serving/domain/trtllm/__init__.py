"""Repositories of TensorRT-LLM on Triton: settings, tensors and files of the engine and the checkpoint recipe."""
