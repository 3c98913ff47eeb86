"""Plain Python of streams: text out of tokens, chat templates, timings."""
