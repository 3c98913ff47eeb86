import django.core.validators
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

NAME = "Use lower-case letters, digits, dots, dashes and underscores; begin with a letter or digit; at most 63."


def key() -> models.BigAutoField:
    return models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")


class Migration(migrations.Migration):

    dependencies = [
        ("chat", "0003_branches_and_timelines"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="PromptSet",
            fields=[
                ("id", key()),
                (
                    "name",
                    models.CharField(
                        max_length=63,
                        unique=True,
                        validators=[
                            django.core.validators.RegexValidator("^[a-z0-9][a-z0-9._-]{0,62}$", NAME)
                        ],
                        verbose_name="name",
                    ),
                ),
                ("description", models.CharField(blank=True, max_length=500, verbose_name="description")),
                ("prompts", models.JSONField(default=list, verbose_name="prompts")),
                ("created_at", models.DateTimeField(auto_now_add=True, verbose_name="created")),
                ("updated_at", models.DateTimeField(auto_now=True, verbose_name="changed")),
            ],
            options={"verbose_name": "prompt set", "ordering": ["name"]},
        ),
        migrations.CreateModel(
            name="Comparison",
            fields=[
                ("id", key()),
                ("title", models.CharField(blank=True, max_length=200, verbose_name="title")),
                (
                    "mode",
                    models.CharField(
                        choices=[("together", "in step"), ("in_turn", "one after the other")],
                        default="together",
                        max_length=8,
                        verbose_name="mode",
                    ),
                ),
                ("sides", models.JSONField(verbose_name="sides")),
                ("questions", models.JSONField(verbose_name="questions")),
                ("chained", models.BooleanField(default=False, verbose_name="one conversation")),
                ("system_prompt", models.TextField(blank=True, verbose_name="system prompt")),
                ("params", models.JSONField(blank=True, default=dict, verbose_name="sampling parameters")),
                ("created_at", models.DateTimeField(auto_now_add=True, verbose_name="created")),
                ("updated_at", models.DateTimeField(auto_now=True, verbose_name="changed")),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="comparisons",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "prompt_set",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="comparisons",
                        to="chat.promptset",
                    ),
                ),
            ],
            options={"verbose_name": "comparison", "ordering": ["-updated_at"]},
        ),
        migrations.CreateModel(
            name="ComparisonPart",
            fields=[
                ("id", key()),
                ("side", models.PositiveSmallIntegerField(verbose_name="side")),
                ("question", models.PositiveSmallIntegerField(default=0, verbose_name="question")),
                ("revision", models.PositiveIntegerField(blank=True, null=True, verbose_name="revision")),
                (
                    "comparison",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="parts",
                        to="chat.comparison",
                    ),
                ),
                (
                    "conversation",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="comparison_part",
                        to="chat.conversation",
                    ),
                ),
            ],
            options={
                "ordering": ["comparison", "question", "side"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("comparison", "side", "question"), name="one_conversation_for_each_part"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="SharedLink",
            fields=[
                ("id", key()),
                ("uid", models.CharField(max_length=40, unique=True, verbose_name="link")),
                ("created_at", models.DateTimeField(auto_now_add=True, verbose_name="shared")),
                ("revoked_at", models.DateTimeField(blank=True, null=True, verbose_name="revoked")),
                (
                    "comparison",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="links",
                        to="chat.comparison",
                    ),
                ),
                (
                    "conversation",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="links",
                        to="chat.conversation",
                    ),
                ),
                (
                    "created_by",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="shared_links",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "verbose_name": "shared link",
                "ordering": ["-created_at"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("comparison__isnull", True), ("conversation__isnull", False)
                        )
                        | models.Q(("comparison__isnull", False), ("conversation__isnull", True)),
                        name="a_link_shows_one_thing",
                    )
                ],
            },
        ),
    ]
