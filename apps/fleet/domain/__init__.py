"""What can be said about GPUs without Django or a database."""
