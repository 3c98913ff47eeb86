"""The pages in headless Chromium, on the real ASGI application with a Redis and a database file of its own."""
