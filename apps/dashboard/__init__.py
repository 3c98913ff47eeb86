"""Pages, navigation, charts for the first paint, static file delivery.

May import every app. Nothing imports it.
States: none."""
