import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("loadtests", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="BackgroundLoad",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("users", models.PositiveIntegerField(verbose_name="users")),
                ("kept_until", models.DateTimeField(verbose_name="kept until")),
                ("created_at", models.DateTimeField(auto_now_add=True, verbose_name="begun")),
                (
                    "run",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="background",
                        to="loadtests.loadrun",
                    ),
                ),
            ],
            options={"verbose_name": "background load", "ordering": ["-created_at"]},
        ),
    ]
