"""Measurements of the parts that people wait for. Each starts what it measures and ends it."""
