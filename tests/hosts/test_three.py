"""The whole of `make hosts`, for `make test-full`."""

from __future__ import annotations

import pytest

from tests.hosts import three


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(1800)
def test_three_hosts_hold_together() -> None:
    assert three.main([]) == 0
