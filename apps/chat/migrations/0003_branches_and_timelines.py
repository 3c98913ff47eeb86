from typing import Any

import django.db.models.deletion
from django.db import migrations, models


def in_one_line(apps: Any, schema_editor: Any) -> None:
    """Conversations so far were a line: each turn follows the newest one of the position before it."""
    turn_model = apps.get_model("chat", "Turn")
    for conversation in apps.get_model("chat", "Conversation").objects.all():
        newest: dict[int, Any] = {}
        for turn in turn_model.objects.filter(conversation=conversation).order_by("position", "id"):
            before = [position for position in newest if position < turn.position]
            turn.parent = newest[max(before)] if before else None
            turn.save(update_fields=["parent"])
            newest[turn.position] = turn
        if newest:
            conversation.head = newest[max(newest)]
            conversation.save(update_fields=["head"])


class Migration(migrations.Migration):

    dependencies = [
        ("chat", "0002_one_running_turn"),
    ]

    operations = [
        migrations.AddField(
            model_name="turn",
            name="parent",
            field=models.ForeignKey(
                blank=True,
                editable=False,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="children",
                to="chat.turn",
            ),
        ),
        migrations.AddField(
            model_name="conversation",
            name="head",
            field=models.ForeignKey(
                blank=True,
                editable=False,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to="chat.turn",
            ),
        ),
        migrations.CreateModel(
            name="Timeline",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("marks", models.JSONField(default=list, verbose_name="messages")),
                (
                    "turn",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="timeline", to="chat.turn"
                    ),
                ),
            ],
            options={"verbose_name": "timeline"},
        ),
        migrations.RunPython(in_one_line, migrations.RunPython.noop),
    ]
