"""What acts on figures, through services: the advisor, and what scales and adapts deployments.

May import everything below the pages. Domain rules are plain Python in domain/.
States: none."""
