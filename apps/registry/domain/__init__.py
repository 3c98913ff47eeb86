"""Reading what vendors ship: GGUF headers and checkpoint sources. Plain Python, no Django."""
