from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("core", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="auditentry",
            name="about",
            field=models.CharField(blank=True, default="", max_length=64, verbose_name="part of"),
        ),
        migrations.AddIndex(
            model_name="auditentry",
            index=models.Index(
                condition=models.Q(("about", ""), _negated=True), fields=["about", "-at"], name="audit_about"
            ),
        ),
    ]
