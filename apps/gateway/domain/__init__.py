"""Plain Python of the gateway."""
