"""Addresses of the pages. Each area has a namespace of its own, named after the app whose objects it shows."""
