from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('fleet', '0003_toolchains'),
    ]

    operations = [
        migrations.CreateModel(
            name='Lead',
            fields=[
                ('name', models.CharField(max_length=20, primary_key=True, serialize=False, verbose_name='duty')),
                ('holder', models.CharField(blank=True, max_length=40, verbose_name='node id')),
                ('until', models.DateTimeField(blank=True, null=True, verbose_name='until')),
                ('protocol_version', models.PositiveIntegerField(default=1, verbose_name='protocol version')),
            ],
            options={
                'verbose_name': 'lead',
            },
        ),
        migrations.AddField(
            model_name='node',
            name='cordon_reason',
            field=models.CharField(blank=True, max_length=300, verbose_name='why it is set aside'),
        ),
        migrations.AddField(
            model_name='node',
            name='drain_deadline',
            field=models.DateTimeField(blank=True, null=True, verbose_name='servers end at'),
        ),
        migrations.AddField(
            model_name='node',
            name='policy',
            field=models.JSONField(blank=True, default=dict, verbose_name='host policy'),
        ),
        migrations.AddField(
            model_name='node',
            name='folders',
            field=models.JSONField(blank=True, default=list, verbose_name='folders'),
        ),
        migrations.AddField(
            model_name='node',
            name='gpu_report',
            field=models.JSONField(blank=True, default=dict, verbose_name='what the driver said'),
        ),
        migrations.AddField(
            model_name='node',
            name='clock_skew_seconds',
            field=models.FloatField(blank=True, null=True, verbose_name='clock skew (s)'),
        ),
        migrations.AddField(
            model_name='gpu',
            name='condition',
            field=models.CharField(
                choices=[('ok', 'ok'), ('stale', 'not seen at the last look'), ('lost', 'does not answer')],
                default='ok', max_length=5, verbose_name='condition',
            ),
        ),
        migrations.AddField(
            model_name='gpu',
            name='condition_note',
            field=models.TextField(blank=True, verbose_name='what is wrong with it'),
        ),
        migrations.AddField(
            model_name='gpu',
            name='unified_memory',
            field=models.BooleanField(default=False, verbose_name="shares the host's memory"),
        ),
        migrations.AddField(
            model_name='gpu',
            name='pci_bus_id',
            field=models.CharField(blank=True, max_length=20, verbose_name='PCI bus id'),
        ),
        migrations.AddField(
            model_name='gpu',
            name='mig_parent',
            field=models.PositiveIntegerField(blank=True, null=True, verbose_name='slice of GPU'),
        ),
        migrations.AddField(
            model_name='gpu',
            name='mig_profile',
            field=models.CharField(blank=True, max_length=40, verbose_name='MIG profile'),
        ),
        migrations.AddField(
            model_name='gpu',
            name='nvlink_group',
            field=models.PositiveIntegerField(blank=True, null=True, verbose_name='NVLink group'),
        ),
        migrations.AddField(
            model_name='gpu',
            name='numa_node',
            field=models.PositiveIntegerField(blank=True, null=True, verbose_name='NUMA node'),
        ),
        migrations.AddIndex(
            model_name='gpulease',
            index=models.Index(
                condition=models.Q(('released_at__isnull', True)),
                fields=['holder_kind', 'holder_id'],
                name='open_leases_of_a_holder',
            ),
        ),
    ]
