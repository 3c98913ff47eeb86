"""Which upstream answers: shares of a route, least outstanding work, prefixes, health. Memory only, one process."""
