"""One module for each way in which servers and exporters tell their figures.

Each has `WANTED` (family names that it reads) and `read(exposition) -> Figures | None` (None: not spoken here).
"""
