"""Scraping of engines and GPUs, the one metric vocabulary, live samples and an hour of history.

May import streaming and everything below it. Absent is null, never 0.
States: none."""
