"""YAML documents: what is refused, with exact sentences; hostile text never gets as far as a value."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

from apps.core.exceptions import InvalidInput
from apps.specs import services
from apps.specs.documents import parse_documents
from apps.specs.planning import make_plan
from apps.specs.yaml_reader import MAX_BYTES, read_documents

DEMO = Path(__file__).parents[2] / "examples" / "demo.yaml"
HEAD = "apiVersion: inflight/v1\nkind: {kind}\nmetadata: {{name: {name}}}\n"


def document(kind: str, spec: str, name: str = "x") -> str:
    return HEAD.format(kind=kind, name=name) + f"spec: {spec}\n"


def findings(text: str) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        parse_documents(text, "f.yaml")
    assert caught.value.sentence == caught.value.findings[0].message
    return [found.message for found in caught.value.findings]


def test_the_demo_has_defaults_for_all_it_leaves_out() -> None:
    documents = parse_documents(DEMO.read_text(encoding="utf-8"), "demo.yaml")
    assert [(item.kind, item.name, item.number) for item in documents] == [
        ("Checkpoint", "smollm2-135m", 1),
        ("BuildProfile", "f16", 2),
        ("BatchingProfile", "inflight-16", 3),
        ("Deployment", "demo", 4),
    ]
    assert documents[0].spec_as_dict() == {"source": {"demo": "smollm2-135m"}}
    assert documents[2].spec_as_dict() == {
        "strategy": "inflight",
        "maxBatchSize": 16,
        "maxQueueDelayMicroseconds": 0,
        "preferredBatchSizes": [],
        "queueTimeoutMicroseconds": 0,
        "maxSeqLen": 1024,
        "maxQueueSize": 256,
        "threads": 0,
        "engine": "llamacpp",
        "preserveOrdering": False,
        "timeoutAction": "reject",
        "allowTimeoutOverride": True,
        "priorityClasses": [],
        "defaultPriorityClass": "",
        "trtllm": {},
    }
    assert documents[3].spec_as_dict() == {
        "build": "f16",
        "batching": "inflight-16",
        "replicas": 1,
        "placement": {"device": "any"},
        "slo": {"windowSeconds": 300},
        "rollout": {
            "maxSurge": 1,
            "maxUnavailable": 0,
            "progressSeconds": 600,
            "drainSeconds": 120,
            "canary": [],
        },
        "scaling": {
            "minReplicas": 1,
            "targets": [],
            "schedule": [],
            "upWindowSeconds": 15,
            "downWindowSeconds": 300,
            "upCooldownSeconds": 15,
            "downCooldownSeconds": 60,
            "wakeSeconds": 300,
        },
        "desired": "running",
    }


@pytest.mark.parametrize(
    ("kind", "spec", "sentence"),
    [
        (
            "BatchingProfile",
            "{maxBatchSiz: 1}",
            "spec.maxBatchSiz is not a known field. Did you mean maxBatchSize?",
        ),
        (
            "BatchingProfile",
            "{max_batch_size: 1}",
            "spec.max_batch_size is not a known field. Did you mean maxBatchSize?",
        ),
        ("BatchingProfile", "{maxBatchSize: 0}", "spec.maxBatchSize must be at least 1, not 0."),
        ("BatchingProfile", "{maxBatchSize: 257}", "spec.maxBatchSize must be at most 256, not 257."),
        (
            "BatchingProfile",
            '{maxBatchSize: "16"}',
            'spec.maxBatchSize must be a whole number, not the text "16".',
        ),
        (
            "BatchingProfile",
            "{maxBatchSize: 1.5}",
            "spec.maxBatchSize must be a whole number, not the number 1.5.",
        ),
        (
            "BatchingProfile",
            "{maxBatchSize: yes}",
            "spec.maxBatchSize must be a whole number, not the truth value true.",
        ),
        ("BatchingProfile", "{maxBatchSize: }", "spec.maxBatchSize must be a whole number, not empty."),
        ("BatchingProfile", "{maxSeqLen: 63}", "spec.maxSeqLen must be at least 64, not 63."),
        (
            "BatchingProfile",
            "{strategy: inflite}",
            'spec.strategy must be one of none, static, dynamic, inflight, not "inflite". Did you mean inflight?',
        ),
        ("BatchingProfile", "[1, 2]", "spec must be a mapping, not a list of 2."),
        ("BuildProfile", "{}", "spec.checkpoint is missing."),
        (
            "BuildProfile",
            "{checkpoint: a, quantization: q8_0}",
            "spec.quantization must be one of F16, BF16, Q8_0, Q5_1, Q5_0, Q4_1, Q4_0, "
            'not "q8_0". Did you mean Q8_0?',
        ),
        (
            "BuildProfile",
            "{checkpoint: 12}",
            "spec.checkpoint must be text, not the number 12; put it in quotes.",
        ),
        (
            "Deployment",
            "{build: a, batching: b, placement: {devise: any}}",
            "spec.placement.devise is not a known field. Did you mean device?",
        ),
        (
            "Deployment",
            "{build: a, batching: b, placement: {device: gpus}}",
            'spec.placement.device must be one of any, cpu, gpu, not "gpus". Did you mean gpu?',
        ),
        (
            "Deployment",
            "{build: a, batching: b, placement: {share: 101}}",
            "spec.placement.share must be at most 100, not 101.",
        ),
        ("Deployment", "{build: a}", "spec.batching is missing."),
        ("Deployment", "{build: '', batching: b}", "spec.build must not be empty."),
        (
            "Deployment",
            "{build: a, batching: b, desired: up}",
            'spec.desired must be one of running, stopped, not "up".',
        ),
        (
            "Checkpoint",
            "{source: {}}",
            "spec.source: give exactly one of demo, path, huggingface and archive.",
        ),
        (
            "Checkpoint",
            "{source: {demo: a, path: /b}}",
            "spec.source: give exactly one of demo, path, huggingface and archive.",
        ),
        (
            "Checkpoint",
            "{source: {huggingface: {rep: a/b}}}",
            "spec.source.huggingface.repo is missing.",
        ),
        (
            "Checkpoint",
            "{source: {huggingface: {repo: nope}}}",
            'spec.source.huggingface.repo "nope" has a form that is not allowed.',
        ),
        (
            "Checkpoint",
            "{source: {demo: [a]}}",
            "spec.source.demo must be text, not a list of 1; put it in quotes.",
        ),
    ],
)
def test_a_broken_specification_names_its_field(kind: str, spec: str, sentence: str) -> None:
    assert f"f.yaml, document 1 ({kind} x), line 4: {sentence}" in findings(document(kind, spec))


def test_every_fault_of_every_document_is_told_with_its_line() -> None:
    text = (
        document("BatchingProfile", "\n  maxBatchSize: 0\n  maxSeqLen: 1", name="Big")
        + "---\napiVersion: inflight/v2\nkind: Deploymnt\n"
        + "---\n- 1\n"
        + "---\nkind: Checkpoint\n"
        + "---\napiVersion: inflight/v1\nmetadata: {name: y}\n"
        + "---\n"
        + HEAD.format(kind="Checkpoint", name="z")
        + "---\n"
        + HEAD.format(kind="Checkpoint", name="12")
        + "labels: {}\nspec: {source: {demo: a}}\n"
    )
    assert findings(text) == [
        'f.yaml, document 1 (BatchingProfile Big), line 3: metadata.name "Big" is not a name: use lower-case '
        "letters, digits, dots, dashes and underscores; begin with a letter or digit; at most 63.",
        "f.yaml, document 1 (BatchingProfile Big), line 5: spec.maxBatchSize must be at least 1, not 0.",
        "f.yaml, document 1 (BatchingProfile Big), line 6: spec.maxSeqLen must be at least 64, not 1.",
        "f.yaml, document 2 (Deploymnt), line 8: apiVersion inflight/v2 is not known; write apiVersion: inflight/v1.",
        "f.yaml, document 2 (Deploymnt), line 9: kind Deploymnt is not known. Did you mean Deployment?",
        "f.yaml, document 3, line 11: a document is a mapping with apiVersion, kind, metadata and spec; "
        "this is a list of 1.",
        "f.yaml, document 4 (Checkpoint), line 13: apiVersion is missing; write apiVersion: inflight/v1.",
        "f.yaml, document 5 (y), line 15: kind is missing. "
        "The kinds are Node, Checkpoint, QuantizationProfile, BuildProfile, QualityGate, BatchingProfile, "
        "ModelRepository, Deployment, ExternalDeployment, GatewayRoute, AlertRule, LoadTest, PromptSet.",
        "f.yaml, document 6 (Checkpoint z), line 18: spec is missing.",
        "f.yaml, document 7 (Checkpoint), line 24: metadata.name must be text, not the number 12; put it in quotes.",
        "f.yaml, document 7 (Checkpoint), line 25: labels is not a known field. "
        "Known are apiVersion, kind, metadata, spec.",
    ]


def test_an_object_is_described_once() -> None:
    one = document("BatchingProfile", "{}")
    assert findings(f"{one}---\n{one}") == [
        "f.yaml, document 2 (BatchingProfile x), line 6: document 1 describes it already; keep one."
    ]


def test_empty_documents_are_passed_over_but_counted() -> None:
    text = f"---\n---\n{document('BatchingProfile', '{}')}---\n"
    assert [item.number for item in parse_documents(text, "f.yaml")] == [2]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "f.yaml holds no document."),
        ("# nothing\n", "f.yaml holds no document."),
        ("a: 1\na: 2\n", "f.yaml, line 2: the key a is there twice; keep one."),
        ("a: {b: 1, c: 2,\n b: 3}\n", "f.yaml, line 2: the key b is there twice; keep one."),
        ("on: 1\n", "f.yaml, line 1: the key on is not text; put it in quotes."),
        ("? [1, 2]\n: 3\n", "f.yaml, line 1: the key a list or mapping is not text; put it in quotes."),
        ("a: [1\n", "f.yaml, line 2: expected ',' or ']', but got '<stream end>'."),
        ("a: b: c\n", "f.yaml, line 1: mapping values are not allowed here."),
        ("a: 2024-13-45\n", "f.yaml: month must be in 1..12."),
        ("a: \x00\n", "f.yaml: special characters are not allowed."),
        (
            "a: !!python/object/apply:os.system [id]\n",
            "f.yaml, line 1: could not determine a constructor for the tag "
            "'tag:yaml.org,2002:python/object/apply:os.system'.",
        ),
        ("&a [*a]\n", "f.yaml, line 1: an alias that contains itself."),
        ("a: *b\n", "f.yaml, line 1: found undefined alias 'b'."),
        ("[" * 40, "f.yaml, line 1: more than 32 levels deep."),
        ("---\n" * 600, "f.yaml, line 501: more than 500 documents."),
        ("a: &a 1\nb: [" + "*a," * 101 + "]\n", "f.yaml, line 2: more than 100 aliases."),
        ("x" * (MAX_BYTES + 1), "f.yaml: the text is larger than 1024 KiB."),
    ],
)
def test_broken_and_hostile_text(text: str, sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_documents(text, "f.yaml")
    assert caught.value.sentence == sentence


def test_aliases_that_explode_are_refused_before_they_do() -> None:
    names = "abcdefgh"
    lines = ["a: &a [1,1,1,1,1,1,1,1,1]"]
    lines += [f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]" for old, new in itertools.pairwise(names)]
    began = time.monotonic()
    with pytest.raises(InvalidInput, match="aliases that stand for too many values"):
        read_documents("\n".join(lines), "f.yaml")
    assert time.monotonic() - began < 2


def test_plain_aliases_are_fine() -> None:
    text = "a: &common {x: 1}\nb: *common\nc: {<<: *common, y: 2}\n"
    assert read_documents(text, "f.yaml")[0].value == {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1, "y": 2}}


@pytest.mark.django_db
def test_a_plan_says_what_restarts_and_what_does_nothing() -> None:
    text = (
        "apiVersion: inflight/v1\nkind: BatchingProfile\nmetadata: {name: wide}\n"
        "spec: {maxBatchSize: 8, preferredBatchSizes: [4], trtllm: {max_beam_width: 2}}\n"
    )
    [made] = make_plan(parse_documents(text, "t.yaml")).objects
    assert made.notes[0].startswith("preferred_batch_sizes: Requests join the running batch")
    assert made.notes[1].startswith("trtllm.max_beam_width: ")
    services.apply("cli", text, "t.yaml")
    [changed] = make_plan(parse_documents(text.replace("[4]", "[]"), "t.yaml")).objects
    assert changed.notes[0] == "No deployment uses it: nothing restarts or reloads."
