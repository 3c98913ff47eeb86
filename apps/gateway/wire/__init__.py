"""What goes over the wire to callers: requests read, chunks and answers written, as OpenAI's API has them."""
