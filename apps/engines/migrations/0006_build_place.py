from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('engines', '0005_build_lists_and_retention'),
    ]

    operations = [
        migrations.AddField(
            model_name='build',
            name='placement',
            field=models.JSONField(blank=True, default=dict, verbose_name='place'),
        ),
    ]
