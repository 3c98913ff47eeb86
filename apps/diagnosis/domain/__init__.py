"""Log rules as data and what they say about a text. Plain Python, no Django."""
