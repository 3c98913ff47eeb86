from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("serving", "0007_places")]

    operations = [
        migrations.AddField(
            model_name="deployment",
            name="scaling",
            field=models.JSONField(blank=True, default=dict, verbose_name="scaling"),
        ),
        migrations.AddField(
            model_name="deployment",
            name="scaled_to",
            field=models.PositiveIntegerField(
                blank=True, editable=False, null=True, verbose_name="scaled to"
            ),
        ),
        migrations.CreateModel(
            name="ScalingDecision",
            fields=[
                (
                    "id",
                    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
                ),
                ("at", models.DateTimeField(auto_now_add=True, verbose_name="at")),
                ("before", models.PositiveIntegerField(verbose_name="servers before")),
                ("after", models.PositiveIntegerField(verbose_name="servers after")),
                ("cause", models.CharField(max_length=20, verbose_name="cause")),
                ("reason", models.CharField(max_length=40, verbose_name="reason")),
                ("sentence", models.TextField(verbose_name="why")),
                ("figures", models.JSONField(default=dict, verbose_name="figures")),
                ("actor", models.CharField(max_length=150, verbose_name="by")),
                (
                    "deployment",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="scaling_decisions",
                        to="serving.deployment",
                    ),
                ),
            ],
            options={"verbose_name": "scaling decision", "ordering": ["-at", "-id"]},
        ),
    ]
