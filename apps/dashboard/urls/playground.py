"""Addresses below /playground/."""

from __future__ import annotations

from django.urls import path

from apps.dashboard.views import compare
from apps.dashboard.views import playground as views

app_name = "chat"
urlpatterns = [
    path("", views.playground, name="playground"),
    path("new/", views.new, name="new"),
    path("<int:pk>/", views.conversation, name="conversation"),
    path("<int:pk>/rename/", views.rename, name="rename"),
    path("<int:pk>/delete/", views.delete, name="delete"),
    path("<int:pk>/share/", compare.share_conversation, name="share"),
    path("<int:pk>/export/<str:wanted>/", compare.export_conversation, name="export"),
    path("compare/", compare.compare, name="compare"),
    path("compare/new/", compare.new, name="new_comparison"),
    path("compare/<int:pk>/", compare.comparison, name="comparison"),
    path("compare/<int:pk>/repeat/", compare.repeat, name="repeat_comparison"),
    path("compare/<int:pk>/rename/", compare.rename, name="rename_comparison"),
    path("compare/<int:pk>/delete/", compare.delete, name="delete_comparison"),
    path("compare/<int:pk>/share/", compare.share, name="share_comparison"),
    path("compare/<int:pk>/export/<str:wanted>/", compare.export, name="export_comparison"),
    path("prompt-sets/save/", compare.save_prompt_set, name="save_prompt_set"),
    path("prompt-sets/<str:name>/delete/", compare.delete_prompt_set, name="delete_prompt_set"),
    path("shared/<str:uid>/", compare.shared, name="shared"),
    path("shared/<str:uid>/export/<str:wanted>/", compare.export_shared, name="export_shared"),
    path("shared/<str:uid>/revoke/", compare.revoke, name="revoke"),
]
