"""Tests run on a home of their own."""

from __future__ import annotations

from django.conf import settings


def test_the_tests_have_their_own_home() -> None:
    assert "inflight-test-" in str(settings.INFLIGHT_HOME)
    assert settings.CHANNEL_LAYERS["default"]["BACKEND"].endswith("InMemoryChannelLayer")
