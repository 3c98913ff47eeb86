import django.core.validators
from django.conf import settings
from django.db import migrations, models


def repeat_specification(apps, schema_editor):
    """Fill the new columns of builds that exist."""
    # The database that is migrated: a restored backup's has an alias of its own.
    builds = apps.get_model("engines", "Build").objects.using(schema_editor.connection.alias)
    changed = []
    for build in builds.only("id", "spec").iterator(chunk_size=500):
        for name in ("builder", "recipe", "quantization"):
            setattr(build, name, str((build.spec or {}).get(name) or ""))
        changed.append(build)
        if len(changed) == 500:
            builds.bulk_update(changed, ["builder", "recipe", "quantization"])
            changed = []
    builds.bulk_update(changed, ["builder", "recipe", "quantization"])


class Migration(migrations.Migration):
    dependencies = [
        ("engines", "0004_trtllm_profiles"),
        ("fleet", "0002_slot_price"),
        ("registry", "0002_fetching"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="RetentionPolicy",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("enabled", models.BooleanField(default=False, verbose_name="clean up once a day")),
                (
                    "engines_days",
                    models.PositiveIntegerField(
                        blank=True,
                        default=30,
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(3650),
                        ],
                        verbose_name="engines not used for (days)",
                    ),
                ),
                (
                    "stages_days",
                    models.PositiveIntegerField(
                        blank=True,
                        default=7,
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(3650),
                        ],
                        verbose_name="work folders older than (days)",
                    ),
                ),
                (
                    "logs_days",
                    models.PositiveIntegerField(
                        blank=True,
                        default=90,
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(3650),
                        ],
                        verbose_name="logs older than (days)",
                    ),
                ),
                (
                    "keep_newest",
                    models.PositiveIntegerField(
                        default=1,
                        validators=[django.core.validators.MaxValueValidator(100)],
                        verbose_name="newest engines kept of each profile",
                    ),
                ),
                (
                    "last_run_at",
                    models.DateTimeField(blank=True, editable=False, null=True, verbose_name="last clean-up"),
                ),
                ("updated_at", models.DateTimeField(auto_now=True, verbose_name="changed")),
            ],
            options={
                "verbose_name": "retention policy",
                "verbose_name_plural": "retention policy",
            },
        ),
        migrations.AddField(
            model_name="build",
            name="builder",
            field=models.CharField(blank=True, editable=False, max_length=20, verbose_name="builder"),
        ),
        migrations.AddField(
            model_name="build",
            name="pinned",
            field=models.BooleanField(default=False, verbose_name="pinned"),
        ),
        migrations.AddField(
            model_name="build",
            name="quantization",
            field=models.CharField(blank=True, editable=False, max_length=20, verbose_name="quantization"),
        ),
        migrations.AddField(
            model_name="build",
            name="recipe",
            field=models.CharField(blank=True, editable=False, max_length=12, verbose_name="recipe"),
        ),
        migrations.AddField(
            model_name="engine",
            name="last_used_at",
            field=models.DateTimeField(blank=True, null=True, verbose_name="last used"),
        ),
        migrations.AddField(
            model_name="engine",
            name="pinned",
            field=models.BooleanField(default=False, verbose_name="pinned"),
        ),
        migrations.AddField(
            model_name="engine",
            name="provenance",
            field=models.CharField(
                choices=[("built", "built here"), ("imported", "imported")],
                default="built",
                max_length=10,
                verbose_name="provenance",
            ),
        ),
        migrations.RunPython(repeat_specification, migrations.RunPython.noop),
        migrations.AddIndex(
            model_name="build",
            index=models.Index(fields=["state", "-number"], name="engines_bui_state_3333cc_idx"),
        ),
        migrations.AddIndex(
            model_name="build",
            index=models.Index(fields=["checkpoint", "-number"], name="engines_bui_checkpo_f323ab_idx"),
        ),
        migrations.AddIndex(
            model_name="build",
            index=models.Index(
                fields=["builder", "recipe", "-number"], name="engines_bui_builder_c14aab_idx"
            ),
        ),
        migrations.AddIndex(
            model_name="build",
            index=models.Index(fields=["quantization", "-number"], name="engines_bui_quantiz_9ade4b_idx"),
        ),
        migrations.AddIndex(
            model_name="build",
            index=models.Index(fields=["node", "-number"], name="engines_bui_node_id_1fee09_idx"),
        ),
        migrations.AddIndex(
            model_name="build",
            index=models.Index(fields=["requested_by", "-number"], name="engines_bui_request_ce8793_idx"),
        ),
        migrations.AddIndex(
            model_name="build",
            index=models.Index(fields=["profile", "-number"], name="engines_bui_profile_51d03a_idx"),
        ),
        migrations.AddIndex(
            model_name="build",
            index=models.Index(fields=["-created_at"], name="engines_bui_created_834793_idx"),
        ),
    ]
