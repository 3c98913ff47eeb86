import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("gateway", "0001_initial"),
        ("serving", "0007_places"),
    ]

    operations = [
        migrations.CreateModel(
            name="AdaptiveAdmission",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("enabled", models.BooleanField(default=False, verbose_name="on")),
                ("settings", models.JSONField(default=dict, verbose_name="settings")),
                (
                    "admitted",
                    models.PositiveIntegerField(blank=True, null=True, verbose_name="requests at once, a server"),
                ),
                ("queue", models.PositiveIntegerField(blank=True, null=True, verbose_name="requests that may wait")),
                ("memory", models.JSONField(blank=True, default=dict)),
                ("looked_at", models.DateTimeField(blank=True, null=True, verbose_name="looked")),
                ("moved_at", models.DateTimeField(blank=True, null=True, verbose_name="moved")),
                ("sentence", models.TextField(blank=True, verbose_name="what it sees")),
                ("created_at", models.DateTimeField(auto_now_add=True, verbose_name="created")),
                ("updated_at", models.DateTimeField(auto_now=True, verbose_name="changed")),
                (
                    "deployment",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="adaptive",
                        to="serving.deployment",
                    ),
                ),
            ],
            options={"verbose_name": "adaptive admission"},
        ),
    ]
