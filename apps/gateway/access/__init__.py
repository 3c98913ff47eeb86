"""Who may ask for how much: limits, priorities, the queue in front of a route."""
