"""Views of the pages, one module for each area. They read selectors, call services and render; nothing else."""
