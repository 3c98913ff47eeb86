"""Model repositories that people already have: read in every legal form, checked, explained.

`check.check_repository` is the way in; plain Python, no server needed.
"""
