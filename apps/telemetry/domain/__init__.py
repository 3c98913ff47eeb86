"""Metrics without Django: the exposition format, histograms, the one vocabulary, and samples out of scrapes."""
