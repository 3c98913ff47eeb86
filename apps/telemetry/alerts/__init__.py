"""Alerts: rules and channels as rows, their evaluation in the telemetry process, and notifications.

Rules say what is watched (domain/alerting), `evaluation` moves alerts, `notifying` decides whom to tell and
`delivery` tells them. May import what telemetry may. States: `alerts/states.py`."""
