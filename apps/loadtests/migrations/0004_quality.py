import django.core.validators
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

NAME = django.core.validators.RegexValidator(
    "^[a-z0-9][a-z0-9._-]{0,62}$",
    "Use lower-case letters, digits, dots, dashes and underscores; begin with a letter or digit; at most 63.",
)
SHARE = [django.core.validators.MinValueValidator(0.0), django.core.validators.MaxValueValidator(1.0)]


class Migration(migrations.Migration):
    dependencies = [
        ("loadtests", "0003_tuning"),
        ("engines", "0005_build_lists_and_retention"),
        ("serving", "0006_imported_repositories"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="QualityRun",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("state", models.CharField(db_index=True, max_length=30, verbose_name="state")),
                ("version", models.PositiveBigIntegerField(default=1, editable=False, verbose_name="version")),
                ("reason", models.CharField(blank=True, max_length=60, verbose_name="reason")),
                ("sentence", models.TextField(blank=True, verbose_name="what happened")),
                ("remedy", models.TextField(blank=True, verbose_name="remedy")),
                ("state_since", models.DateTimeField(auto_now_add=True, verbose_name="in this state since")),
                ("created_at", models.DateTimeField(auto_now_add=True, verbose_name="created")),
                ("updated_at", models.DateTimeField(auto_now=True, verbose_name="changed")),
                ("number", models.PositiveIntegerField(unique=True, verbose_name="number")),
                ("method", models.CharField(choices=[("logits", "log-probabilities of both files"), ("answers", "greedy answers of two deployments")], max_length=10, verbose_name="method")),
                ("title", models.CharField(max_length=200, verbose_name="title")),
                ("settings", models.JSONField(default=dict, verbose_name="settings")),
                ("result", models.JSONField(blank=True, null=True, verbose_name="result")),
                ("node_id", models.CharField(blank=True, max_length=40, verbose_name="node")),
                ("folder", models.CharField(blank=True, max_length=1000, verbose_name="folder")),
                ("log_path", models.CharField(blank=True, max_length=1000, verbose_name="log")),
                ("attempt", models.PositiveIntegerField(default=0, verbose_name="attempt")),
                ("retries", models.PositiveIntegerField(default=0, verbose_name="retries")),
                ("lease_expires_at", models.DateTimeField(blank=True, null=True, verbose_name="lease expires")),
                ("dispatched_at", models.DateTimeField(blank=True, null=True, verbose_name="sent to a worker")),
                ("cancel_requested_at", models.DateTimeField(blank=True, null=True, verbose_name="cancel requested")),
                ("child_pid", models.PositiveIntegerField(blank=True, null=True, verbose_name="process")),
                ("child_created", models.FloatField(blank=True, null=True, verbose_name="process create time")),
                ("child_group", models.PositiveIntegerField(blank=True, null=True, verbose_name="process group")),
                ("progress", models.FloatField(blank=True, null=True, verbose_name="progress")),
                ("eta_seconds", models.FloatField(blank=True, null=True, verbose_name="seconds left")),
                ("started_at", models.DateTimeField(blank=True, null=True, verbose_name="started")),
                ("finished_at", models.DateTimeField(blank=True, null=True, verbose_name="finished")),
                ("engine", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name="quality_runs", to="engines.engine")),
                ("baseline", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="engines.engine")),
                ("deployment", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name="quality_runs", to="serving.deployment")),
                ("baseline_deployment", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="serving.deployment")),
                ("requested_by", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to=settings.AUTH_USER_MODEL)),
            ],
            options={"verbose_name": "quality run", "ordering": ["-number"]},
        ),
        migrations.CreateModel(
            name="QualityGate",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=63, unique=True, validators=[NAME], verbose_name="name")),
                ("max_perplexity_ratio", models.FloatField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1.0)], verbose_name="perplexity ratio at most")),
                ("max_divergence", models.FloatField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(0.0)], verbose_name="KL divergence at most (nats a token)")),
                ("min_top1", models.FloatField(blank=True, null=True, validators=SHARE, verbose_name="top-1 agreement at least")),
                ("min_agreement", models.FloatField(blank=True, null=True, validators=SHARE, verbose_name="greedy agreement at least")),
                ("blocking", models.BooleanField(default=True, verbose_name="blocks promotion")),
                ("created_at", models.DateTimeField(auto_now_add=True, verbose_name="created")),
                ("updated_at", models.DateTimeField(auto_now=True, verbose_name="changed")),
                ("build_profile", models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name="quality_gate", to="engines.buildprofile", verbose_name="build profile")),
            ],
            options={"verbose_name": "quality gate", "ordering": ["name"]},
        ),
        migrations.CreateModel(
            name="QualityWaiver",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("why", models.CharField(max_length=500, verbose_name="why")),
                ("created_at", models.DateTimeField(auto_now_add=True, verbose_name="waived")),
                ("engine", models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name="quality_waiver", to="engines.engine")),
                ("waived_by", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to=settings.AUTH_USER_MODEL)),
            ],
            options={"verbose_name": "quality waiver"},
        ),
    ]
