import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("chat", "0004_comparisons"),
        ("gateway", "0002_adaptive_admission"),
        ("serving", "0001_initial"),
    ]

    operations = [
        migrations.AlterField(
            model_name="conversation",
            name="deployment",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="conversations",
                to="serving.deployment",
            ),
        ),
        migrations.AddField(
            model_name="conversation",
            name="external",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="conversations",
                to="gateway.externaldeployment",
            ),
        ),
        migrations.AddConstraint(
            model_name="conversation",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("deployment__isnull", False), ("external__isnull", True)),
                    models.Q(("deployment__isnull", True), ("external__isnull", False)),
                    _connector="OR",
                ),
                name="a_conversation_has_one_engine",
            ),
        ),
    ]
