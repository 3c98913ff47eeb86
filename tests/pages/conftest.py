"""One of everything, and a client for each role."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from django.contrib.auth.models import User
from django.test import Client

from apps.chat.models import Conversation
from apps.engines.models import Build, Engine
from apps.fleet.models import Node
from apps.registry.models import Checkpoint
from apps.serving.models import Deployment, Instance
from tests import gateway_rows, objects, people
from tests.loadtests import rows as load_rows
from tests.pages import alert_rows
from tests.support.sequences import go_on_after


@dataclass(slots=True)
class World:
    """Rows that every page has something to show of."""

    checkpoint: Checkpoint
    build: Build
    deployment: Deployment
    instance: Instance
    node: Node


@pytest.fixture
def world(db: None) -> World:
    """A checkpoint, a queued build, a stopped deployment with a revision and a server, a node."""
    checkpoint = objects.checkpoint()
    profile = objects.build_profile()
    build = objects.build(profile, number=7)
    objects.engine(profile, pk=1)
    go_on_after(Engine)
    deployment = objects.deployment("demo", build_profile=profile)
    revision = objects.revision(deployment)
    node = objects.node()
    objects.model_repository()
    alert_rows.one_of_each()
    gateway_rows.everything()
    load_rows.everything(deployment)
    return World(checkpoint, build, deployment, objects.instance(revision, "abc123", node=node), node)


@pytest.fixture
def sign_in(db: None) -> Callable[..., Client]:
    """A client signed in as somebody with these roles."""

    def client(*roles: str) -> Client:
        name = "-".join(roles) or "nobody"
        return people.client_of(User.objects.filter(username=name).first() or people.person(*roles))

    return client


def conversation_of(user: User, deployment: Deployment) -> Conversation:
    """A conversation of a person."""
    return Conversation.objects.create(owner=user, deployment=deployment, title="Paris")
