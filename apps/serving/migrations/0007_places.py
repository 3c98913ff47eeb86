from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('serving', '0006_imported_repositories'),
    ]

    operations = [
        migrations.AddField(
            model_name='deployment',
            name='placement_report',
            field=models.JSONField(
                blank=True, default=dict, editable=False, verbose_name='why a server waits for a place'
            ),
        ),
        migrations.AddField(
            model_name='instance',
            name='placement',
            field=models.JSONField(blank=True, default=dict, verbose_name='place'),
        ),
        migrations.AddField(
            model_name='instance',
            name='evicted_at',
            field=models.DateTimeField(blank=True, null=True, verbose_name='to leave its node since'),
        ),
        migrations.RemoveConstraint(
            model_name='instance',
            name='one_live_instance_per_replica',
        ),
        migrations.AddConstraint(
            model_name='instance',
            constraint=models.UniqueConstraint(
                condition=models.Q(
                    ('evicted_at__isnull', True),
                    models.Q(('state__in', ['gone', 'failed']), _negated=True),
                ),
                fields=('revision', 'replica'),
                name='one_live_instance_per_replica',
            ),
        ),
    ]
