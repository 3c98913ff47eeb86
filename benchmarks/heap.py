"""What a page keeps in a browser's JavaScript heap, and how much of it is the engine's machine code."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page

# What V8 makes when it compiles a function that has become hot: the code, its tables and its literals. It comes as
# functions get hot, belongs to the program and not to its data, and is bounded by the size of the program.
MACHINE_CODE = frozenset(
    {
        "system / InstructionStream",
        "system / Code",
        "system / CodeWrapper",
        "system / TrustedByteArray",
        "system / ProtectedFixedArray",
        "system / TrustedWeakFixedArray",
    }
)


def living(page: Page, client: Any) -> dict[str, float]:
    """What lives: the least of several collections while the page is paused.

    Sixty draws a second make megabytes of garbage between a collection and the question how much is left.
    """
    page.click("[data-charts-pause]")
    page.wait_for_function("() => scheduler.waiting === 0")
    used = []
    for _time in range(6):
        client.send("HeapProfiler.collectGarbage")
        used.append(client.send("Runtime.getHeapUsage")["usedSize"])
        time.sleep(0.4)
    counted = client.send("Memory.getDOMCounters")
    page.click("[data-charts-pause]")
    return {"heap": min(used), "nodes": counted["nodes"],
            "listeners": counted["jsEventListeners"]}  # fmt: skip


def machine_code(page: Page, client: Any) -> int:
    """Bytes of machine code in the heap, out of a snapshot of it while the page is paused."""
    page.click("[data-charts-pause]")
    page.wait_for_function("() => scheduler.waiting === 0")
    pieces: list[str] = []

    def piece(event: dict[str, str]) -> None:
        pieces.append(event["chunk"])

    client.on("HeapProfiler.addHeapSnapshotChunk", piece)
    client.send("HeapProfiler.takeHeapSnapshot", {"reportProgress": False})
    client.remove_listener("HeapProfiler.addHeapSnapshotChunk", piece)
    page.click("[data-charts-pause]")
    return code_of(json.loads("".join(pieces)))


def code_of(snapshot: dict[str, Any]) -> int:
    """Bytes of the nodes of a snapshot that are machine code."""
    fields = snapshot["snapshot"]["meta"]["node_fields"]
    nodes, strings = snapshot["nodes"], snapshot["strings"]
    wide = len(fields)
    names = nodes[fields.index("name") :: wide]
    sizes = nodes[fields.index("self_size") :: wide]
    return sum(size for name, size in zip(names, sizes, strict=True) if strings[name] in MACHINE_CODE)
