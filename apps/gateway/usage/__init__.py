"""What is kept of requests: usage by hour, recent requests."""
