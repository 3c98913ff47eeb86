"""The pages of every area, navigation, charts for the first paint, static file delivery.

May import every app; nothing imports it. Views live here and not in the apps, because a page shows rows of several
apps and samples of telemetry, which the apps below may not import. They only read selectors and call services.
States: none."""
