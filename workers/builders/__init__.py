"""Builders: how an engine is made. base.py is the seam; a builder returns data and starts nothing itself."""
