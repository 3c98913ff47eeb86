"""Addresses below /deployments/. No name begins with a dash, so `-/` is free for pages."""

from __future__ import annotations

from django.urls import path

from apps.dashboard.views import advice, rollout, scaling
from apps.dashboard.views import deployment as one
from apps.dashboard.views import deployments as views
from apps.dashboard.views.adaptive import adaptive

app_name = "serving"
urlpatterns = [
    path("", views.deployments, name="deployments"),
    path("-/new/", views.new, name="new"),
    path("-/preview/", views.preview, name="preview"),
    path("<str:name>/", one.live, name="deployment"),
    path("<str:name>/live.json", one.live_data, name="live_data"),
    path("<str:name>/instances/", one.instances, name="instances"),
    path("<str:name>/configuration/", one.configuration, name="configuration"),
    path("<str:name>/advice/", advice.advice, name="advice"),
    path("<str:name>/advice/<str:advice_id>/apply/", advice.apply, name="apply_advice"),
    path("<str:name>/adaptive/", adaptive, name="adaptive"),
    path("<str:name>/access/", one.access, name="access"),
    path("<str:name>/edit/", views.edit, name="edit"),
    path("<str:name>/deploy/", views.deploy, name="deploy"),
    path("<str:name>/stop/", views.stop, name="stop"),
    path("<str:name>/delete/", views.delete, name="delete"),
    path("<str:name>/rollout/", rollout.rollout, name="rollout"),
    path("<str:name>/scaling/", scaling.scaling, name="scaling"),
    path("<str:name>/scaling/wake/", scaling.wake, name="wake"),
    path("<str:name>/rollout/pause/", views.pause_rollout, name="pause_rollout"),
    path("<str:name>/rollout/resume/", views.resume_rollout, name="resume_rollout"),
    path("<str:name>/rollout/promote/", views.promote_rollout, name="promote_rollout"),
    path("<str:name>/roll-back/<int:number>/", views.roll_back, name="roll_back"),
    path("<str:name>/instances/<str:uid>/restart/", views.restart, name="restart"),
    path("<str:name>/instances/<str:uid>/log", one.log, name="log"),
]
