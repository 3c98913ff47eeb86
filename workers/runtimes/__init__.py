"""Servers: the ServerRuntime seam (base.py) and its implementation for tritonserver (triton.py).

May import apps' domain code; rows are the business of workers/reconcile.py alone.
"""
