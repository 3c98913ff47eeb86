"""Service levels, roll-outs with their progress, and what is kept of every crash."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """See the module docstring."""

    dependencies = [("serving", "0004_profile_settings_and_versions")]

    operations = [
        migrations.AddField(
            "deployment", "slo", models.JSONField(blank=True, default=dict, verbose_name="service level")
        ),
        migrations.AddField(
            "deployment", "rollout", models.JSONField(blank=True, default=dict, verbose_name="roll-out")
        ),
        migrations.AddField(
            "revision",
            "canary_step",
            models.PositiveIntegerField(blank=True, editable=False, null=True, verbose_name="canary step"),
        ),
        migrations.AddField(
            "revision",
            "moved_at",
            models.DateTimeField(blank=True, editable=False, null=True, verbose_name="last decision"),
        ),
        migrations.AddField(
            "revision",
            "paused_at",
            models.DateTimeField(blank=True, editable=False, null=True, verbose_name="paused"),
        ),
        migrations.AddField(
            "revision",
            "promoted_at",
            models.DateTimeField(blank=True, editable=False, null=True, verbose_name="promoted"),
        ),
        migrations.CreateModel(
            "CrashReport",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("deployment_name", models.CharField(max_length=63, verbose_name="deployment")),
                ("uid", models.CharField(db_index=True, max_length=40, verbose_name="instance id")),
                ("revision", models.PositiveIntegerField(verbose_name="revision")),
                ("replica", models.PositiveIntegerField(default=0, verbose_name="replica")),
                ("attempt", models.PositiveIntegerField(default=0, verbose_name="attempt")),
                ("restarts", models.PositiveIntegerField(default=0, verbose_name="restarts")),
                ("node", models.CharField(blank=True, max_length=255, verbose_name="node")),
                ("slot", models.CharField(blank=True, max_length=20, verbose_name="slot")),
                ("server_version", models.CharField(blank=True, max_length=40, verbose_name="Triton version")),
                ("at", models.DateTimeField(auto_now_add=True, verbose_name="at")),
                ("was", models.CharField(max_length=30, verbose_name="state before")),
                ("served_seconds", models.FloatField(blank=True, null=True, verbose_name="served for (s)")),
                ("reason", models.CharField(max_length=60, verbose_name="reason")),
                ("sentence", models.TextField(verbose_name="what happened")),
                ("remedy", models.TextField(blank=True, verbose_name="remedy")),
                ("exit_code", models.IntegerField(blank=True, null=True, verbose_name="exit code")),
                ("log", models.TextField(blank=True, verbose_name="log")),
                ("gpus", models.JSONField(blank=True, null=True, verbose_name="GPUs")),
                ("diagnosis", models.JSONField(blank=True, null=True, verbose_name="diagnosis")),
                (
                    "deployment",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="crash_reports",
                        to="serving.deployment",
                    ),
                ),
            ],
            options={"verbose_name": "crash report", "ordering": ["-at", "-id"]},
        ),
    ]
