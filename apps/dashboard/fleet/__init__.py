"""What the pages of nodes and GPUs show: the map, who holds what, figures now."""
