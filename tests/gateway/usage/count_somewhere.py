"""Adds requests to the usage of a database that DATABASE_URL names: `python -m ... KEYS ROUNDS`. For tests."""

from __future__ import annotations

import os
import sys
import time

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
django.setup()

from apps.gateway.domain.facts import RequestRecord  # noqa: E402 - needs the settings
from apps.gateway.usage.recorder import Recorder  # noqa: E402

keys, rounds = int(sys.argv[1]), int(sys.argv[2])
recorder = Recorder()
for number in range(rounds):
    for key in range(keys):
        recorder.put(
            RequestRecord(
                request_id=f"{os.getpid()}-{number}-{key}\x00",
                key_id=key + 1,
                key_name="app",
                route="demo",
                upstream="abc",
                revision=1,
                endpoint="chat",
                at=time.time(),
                status=200,
                outcome="ok",
                prompt_tokens=2,
                completion_tokens=3,
                ttft_seconds=0.1,
            )
        )
    if not recorder.flush():
        sys.exit("not written")
