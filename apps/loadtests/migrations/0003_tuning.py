import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

STATUS = [
    ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
    ("state", models.CharField(db_index=True, max_length=30, verbose_name="state")),
    ("version", models.PositiveBigIntegerField(default=1, editable=False, verbose_name="version")),
    ("reason", models.CharField(blank=True, max_length=60, verbose_name="reason")),
    ("sentence", models.TextField(blank=True, verbose_name="what happened")),
    ("remedy", models.TextField(blank=True, verbose_name="remedy")),
    ("state_since", models.DateTimeField(auto_now_add=True, verbose_name="in this state since")),
    ("created_at", models.DateTimeField(auto_now_add=True, verbose_name="created")),
    ("updated_at", models.DateTimeField(auto_now=True, verbose_name="changed")),
]


class Migration(migrations.Migration):
    dependencies = [
        ("loadtests", "0002_background_load"),
        ("serving", "0007_places"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Tuning",
            fields=[
                *STATUS,
                ("number", models.PositiveIntegerField(unique=True, verbose_name="number")),
                ("target", models.CharField(max_length=63, verbose_name="deployment")),
                ("request", models.JSONField(verbose_name="request")),
                ("scenario", models.JSONField(verbose_name="scenario")),
                ("space", models.JSONField(verbose_name="space")),
                ("base", models.JSONField(verbose_name="begun from")),
                ("share", models.PositiveIntegerField(blank=True, null=True, verbose_name="share of a slot")),
                ("seed", models.PositiveIntegerField(verbose_name="seed")),
                ("allow_production", models.BooleanField(default=False, verbose_name="allowed beside production")),
                ("winner", models.PositiveIntegerField(blank=True, null=True, verbose_name="best trial")),
                ("report", models.JSONField(blank=True, default=list, verbose_name="report")),
                ("applied_trial", models.PositiveIntegerField(blank=True, null=True, verbose_name="applied trial")),
                ("applied_at", models.DateTimeField(blank=True, null=True, verbose_name="applied")),
                ("applied_before", models.PositiveIntegerField(blank=True, null=True, verbose_name="revision before")),
                ("dispatched_at", models.DateTimeField(blank=True, null=True, verbose_name="sent to a worker")),
                ("cancel_requested_at", models.DateTimeField(blank=True, null=True, verbose_name="cancel requested")),
                ("finished_at", models.DateTimeField(blank=True, null=True, verbose_name="finished")),
                (
                    "deployment",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="tunings",
                        to="serving.deployment",
                    ),
                ),
                (
                    "requested_by",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={"verbose_name": "tuning", "ordering": ["-number"]},
        ),
        migrations.CreateModel(
            name="Trial",
            fields=[
                *STATUS,
                ("number", models.PositiveIntegerField(verbose_name="number")),
                ("configuration", models.JSONField(verbose_name="configuration")),
                ("source", models.CharField(max_length=12, verbose_name="proposed by")),
                ("made", models.CharField(blank=True, max_length=63, verbose_name="served as")),
                ("figures", models.JSONField(blank=True, null=True, verbose_name="figures")),
                ("outcome", models.CharField(blank=True, max_length=12, verbose_name="ends as")),
                ("finished_at", models.DateTimeField(blank=True, null=True, verbose_name="finished")),
                (
                    "run",
                    models.OneToOneField(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="trial",
                        to="loadtests.loadrun",
                    ),
                ),
                (
                    "tuning",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="trials", to="loadtests.tuning"
                    ),
                ),
            ],
            options={
                "verbose_name": "trial",
                "ordering": ["tuning", "number"],
                "constraints": [
                    models.UniqueConstraint(fields=("tuning", "number"), name="one_trial_per_number")
                ],
            },
        ),
    ]
