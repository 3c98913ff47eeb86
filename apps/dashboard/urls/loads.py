"""Addresses below /load-tests/."""

from __future__ import annotations

from django.urls import path

from apps.dashboard.views import load_actions as actions
from apps.dashboard.views import loads as views
from apps.dashboard.views import quality, tuning

app_name = "loadtests"
urlpatterns = [
    path("", views.tests, name="tests"),
    path("new/", views.new, name="new"),
    path("compare/", views.compare, name="compare"),
    path("runs/<int:number>/", views.run, name="run"),
    path("runs/<int:number>/log", views.log, name="log"),
    path("runs/<int:number>/stop/", actions.stop, name="stop"),
    path("runs/<int:number>/repeat/", actions.repeat, name="repeat"),
    path("runs/<int:number>/delete/", actions.delete_run, name="delete_run"),
    path("studies/new/", views.new_study, name="new_study"),
    path("studies/<int:number>/", views.study, name="study"),
    path("studies/<int:number>/cancel/", actions.cancel_study, name="cancel_study"),
    path("studies/<int:number>/delete/", actions.delete_study, name="delete_study"),
    path("quality/", quality.quality, name="quality"),
    path("quality/new/", quality.new, name="new_quality_run"),
    path("quality/<int:number>/", quality.run, name="quality_run"),
    path("quality/<int:number>/log", quality.log, name="quality_log"),
    path("quality/<int:number>/cancel/", quality.cancel, name="cancel_quality_run"),
    path("quality/<int:number>/repeat/", quality.repeat, name="repeat_quality_run"),
    path("quality/<int:number>/delete/", quality.delete, name="delete_quality_run"),
    path("quality/gates/new/", quality.new_gate, name="new_quality_gate"),
    path("quality/gates/<str:name>/", quality.gate, name="quality_gate"),
    path("quality/gates/<str:name>/delete/", quality.delete_gate, name="delete_quality_gate"),
    path("quality/engines/<str:fingerprint>/waive/", quality.waive, name="waive_quality_gate"),
    path("quality/engines/<str:fingerprint>/gate/", quality.end_waiver, name="end_quality_waiver"),
    path("tunings/new/", tuning.new, name="new_tuning"),
    path("tunings/<int:number>/", tuning.show, name="tuning"),
    path("tunings/<int:number>/cancel/", tuning.cancel, name="cancel_tuning"),
    path("tunings/<int:number>/apply/", tuning.apply, name="apply_tuning"),
    path("tunings/<int:number>/delete/", tuning.delete, name="delete_tuning"),
    path("production/<str:name>/", actions.production, name="production"),
    path("tests/<str:name>/run/", actions.start, name="start"),
    path("tests/<str:name>/delete/", actions.delete_test, name="delete_test"),
]
