"""What answers: Triton over HTTP or gRPC, other OpenAI-style servers over HTTP."""
