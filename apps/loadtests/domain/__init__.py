"""What a load test is and what its records say; plain Python and numpy, without Django."""
