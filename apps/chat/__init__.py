"""The playground: conversations and turns, streamed over a websocket.

May import streaming, serving and what lies below. A turn belongs to the web process, not to the socket.
States: states.py (Turn)."""
