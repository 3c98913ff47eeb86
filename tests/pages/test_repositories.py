"""Pages about imported repositories: what they show, and what their forms do."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.urls import reverse

from apps.accounts.roles import ADMINISTRATOR, OPERATOR
from apps.dashboard import ensemble_graph
from apps.serving import adoption
from apps.serving.models import BatchingProfile, Deployment, ModelRepository
from tests import objects, people

pytestmark = pytest.mark.django_db
EDGES = [
    {"from": "input", "to": "pre", "tensor": "text"},
    {"from": "input", "to": "engine", "tensor": "max_tokens"},
    {"from": "pre", "to": "engine", "tensor": "ids"},
    {"from": "engine", "to": "post", "tensor": "tokens"},
    {"from": "post", "to": "output", "tensor": "text_output"},
]


def test_a_graph_runs_from_left_to_right_and_names_every_tensor() -> None:
    drawing = ensemble_graph.draw("e", EDGES)
    at = {box.name: box.x for box in drawing.boxes}
    assert at["input"] < at["pre"] < at["engine"] < at["post"] < at["output"]
    assert {line.title for line in drawing.lines} == {edge["tensor"] for edge in EDGES}
    assert all(box.x + drawing.box_width <= drawing.width for box in drawing.boxes)
    # A circle is a finding of the check; its drawing ends all the same.
    assert ensemble_graph.draw(
        "c", [{"from": "a", "to": "b", "tensor": "x"}, {"from": "b", "to": "a", "tensor": "y"}]
    )


def test_import_look_adopt_and_forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adoption, "backends", lambda: frozenset({"python"}))
    person = people.person(ADMINISTRATOR)
    User.objects.filter(pk=person.pk).update(is_superuser=True)
    client = people.client_of(person)
    folder = objects.repository_folder("mine")
    refused = client.post(reverse("repositories:new"), {"name": "mine", "path": "/etc"})
    assert (refused.status_code, "not inside a folder" in refused.content.decode()) == (422, True)
    made = client.post(reverse("repositories:new"), {"name": "mine", "path": str(folder)})
    assert made.headers["Location"] == reverse("repositories:repository", args=["mine"])
    shown = client.get(made.headers["Location"]).content.decode()
    for text in (
        "Nothing keeps these models from loading",
        "max_queue_delay_microseconds",
        "kept",
        "doubler",
    ):
        assert text in shown
    adopted = client.post(made.headers["Location"], {"name": "doubled"})
    assert adopted.headers["Location"] == reverse("serving:configuration", args=["doubled"])
    page = client.get(adopted.headers["Location"]).content.decode()
    assert "Settings of the repository" in page
    edited = client.post(
        reverse("serving:edit", args=["doubled"]), {"batching": "doubled", "replicas": "2", "device": "cpu"}
    )
    assert edited.status_code == 303
    assert Deployment.objects.get().replicas == 2
    for name in (
        "serving:deployment",
        "serving:instances",
        "serving:advice",
        "serving:access",
        "serving:edit",
    ):
        assert client.get(reverse(name, args=["doubled"])).status_code == 200
    assert client.post(reverse("repositories:check", args=["mine"])).status_code == 303
    Deployment.objects.all().delete()
    assert client.post(reverse("repositories:delete", args=["mine"])).status_code == 303
    assert not ModelRepository.objects.exists()


def test_a_folder_that_went_away_is_said(tmp_path: Path) -> None:
    row = objects.model_repository()
    ModelRepository.objects.update(folder=str(tmp_path / "gone"))
    client = people.client_of(people.person(OPERATOR))
    shown = client.get(reverse("repositories:repository", args=[row.name])).content.decode()
    assert "neither a folder nor a file" in shown
    answer = client.post(reverse("repositories:check", args=[row.name]))
    assert (answer.status_code, "is not there any more" in answer.content.decode()) == (409, True)


def test_a_pasted_line_leads_to_its_profile() -> None:
    client = people.client_of(people.person(OPERATOR))
    line = 'python3 fill_template.py -i c.pbtxt "triton_max_batch_size:8,typo:1"'
    answer = client.post(reverse("repositories:line"), {"name": "pasted", "command": line})
    row = BatchingProfile.objects.get()
    assert answer.headers["Location"] == reverse("admin:serving_batchingprofile_change", args=[row.pk])
    wrong = client.post(reverse("repositories:line"), {"name": "other", "command": "ls"})
    assert (wrong.status_code, "no fill_template.py line" in wrong.content.decode()) == (422, True)
