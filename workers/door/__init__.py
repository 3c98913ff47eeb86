"""The node's proxy: its door for the other hosts, and its near end, where their servers answer on this host.

A connection to a door begins with one line of JSON, {"token", "to", ...}, and gets one line back, {"ok": true, ...}
or {"error", "message"}. After `to: "server"` it is the server's port, byte by byte, both ways: HTTP and gRPC
pass unchanged, and a stream that was opened stays open whatever the control plane does. After `to: "log"` come
`bytes` bytes of the log. The line is at most LINE bytes long and comes within FIRST_SECONDS.
"""

from __future__ import annotations

LINE = 4096
FIRST_SECONDS = 10.0
CHUNK = 64 * 1024
