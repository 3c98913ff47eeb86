"""Pages of load tests: plots drawn on the server, contexts, exports."""
