"""Rows of a deployment that serves, without any process behind it."""

from __future__ import annotations

from apps.engines.models import BuildProfile, Engine
from apps.fleet.models import Gpu, Node
from apps.registry.models import Checkpoint
from apps.serving.models import BatchingProfile, Deployment, Instance, Revision


def serving_deployment(name: str, **instance: object) -> Deployment:
    """A ready deployment with one serving instance; `instance` changes columns of the latter."""
    checkpoint = Checkpoint.objects.create(
        name=f"{name}-checkpoint", source={"demo": name}, state="ready", chat_template=TEMPLATE
    )
    profile = BuildProfile.objects.create(name=f"{name}-f16", checkpoint=checkpoint)
    batching = BatchingProfile.objects.create(name=f"{name}-batching")
    node, _made = Node.objects.get_or_create(
        node_id="n-test", defaults={"hostname": "here", "home": "/", "state": "ready"}
    )
    gpu, _made = Gpu.objects.get_or_create(node=node, index=0, defaults={"device": "cpu", "product": "CPU"})
    engine = Engine.objects.create(
        fingerprint=name.ljust(64, "0"),
        checkpoint=checkpoint,
        builder="llamacpp",
        quantization="F16",
        node=node,
        path="/nowhere",
        size_bytes=1,
        state="ready",
    )
    deployment = Deployment.objects.create(
        name=name, build_profile=profile, batching=batching, state="ready", desired="running"
    )
    revision = Revision.objects.create(
        deployment=deployment, number=3, engine=engine, batching={}, state="active"
    )
    deployment.active_revision = revision
    deployment.save()
    Instance.objects.create(
        **{
            "deployment": deployment,
            "revision": revision,
            "uid": f"i-{name}",
            "node": node,
            "gpu": gpu,
            "state": "serving",
            "http_port": 1,
            "grpc_port": 2,
            "metrics_port": 3,
            **instance,
        }
    )
    return deployment


TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
