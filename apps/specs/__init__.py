"""Configuration as code: YAML documents (apiVersion inflight/v1), plan, apply and export; the REST API's assembly.

May import every app below dashboard. All changes go through the owning app's services.
States: none."""
