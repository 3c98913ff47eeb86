"""The frozen specification of a build. Plain Python, no Django."""
