"""Batching profiles, deployments, revisions and instances (Triton processes).

May import engines and everything below it. domain/ renders model repositories through protobuf.
States: states.py (Deployment, Revision, Instance)."""
