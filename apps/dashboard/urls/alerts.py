"""Addresses below /metrics/alerts/. No name begins with a dash, so `-/` is free for pages."""

from __future__ import annotations

from django.urls import path

from apps.dashboard.views import alert_rules, alerts

app_name = "alerts"
urlpatterns = [
    path("", alerts.alerts, name="alerts"),
    path("bell/", alerts.bell, name="bell"),
    path("history/", alerts.history, name="history"),
    path("rules/", alert_rules.rules, name="rules"),
    path("rules/-/new/", alert_rules.new_rule, name="new_rule"),
    path("rules/-/preview/", alert_rules.preview, name="preview"),
    path("rules/<str:name>/", alert_rules.rule, name="rule"),
    path("rules/<str:name>/switch/", alert_rules.switch_rule, name="switch_rule"),
    path("rules/<str:name>/delete/", alert_rules.delete_rule, name="delete_rule"),
    path("silences/", alerts.silence_list, name="silences"),
    path("silences/<int:pk>/end/", alerts.end_silence, name="end_silence"),
    path("channels/", alert_rules.channels, name="channels"),
    path("channels/<str:name>/", alert_rules.channel, name="channel"),
    path("channels/<str:name>/test/", alert_rules.test_channel, name="test_channel"),
    path("channels/<str:name>/delete/", alert_rules.delete_channel, name="delete_channel"),
    path("notifications/", alert_rules.notifications, name="notifications"),
    path("<int:pk>/", alerts.alert, name="alert"),
    path("<int:pk>/acknowledge/", alerts.acknowledge, name="acknowledge"),
    path("<int:pk>/unacknowledge/", alerts.unacknowledge, name="unacknowledge"),
]
