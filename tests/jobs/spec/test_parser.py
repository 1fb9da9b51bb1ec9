"""Parser of job specifications."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.messages import specification as specification_messages
from jobs.selectors.specifications import parse
from jobs.spec import quantities
from jobs.spec.model import JobSpec
from portal.common.errors import NotFound, ValidationFailed
from runtime.messages import data as data_messages
from runtime.messages import paragraph
from runtime.messages import training as training_messages
from tests.jobs.spec.documents import GOOD, bodies
from tests.messages import mentions
from tests.properties import examples


def read(**fields: object) -> JobSpec:
    return parse({**GOOD, **fields}, find_dataset=lambda name: name)


def errors(**fields: object) -> dict[str, list[str]]:
    with pytest.raises(ValidationFailed) as refused:
        read(**fields)
    return refused.value.errors


def only_error(**fields: object) -> tuple[str, str]:
    [(path, [message])] = errors(**fields).items()
    return path, message


def test_absent_fields_have_their_defaults() -> None:
    spec = read()
    assert (spec.framework, spec.mode, spec.passes, spec.timeout) == ("native", "sync", 1, timedelta(hours=1))
    assert (spec.trainer.replicas, spec.trainer.memory, spec.pserver.replicas) == (1, 512 * 1024**2, 1)


def test_yaml_json_and_mapping_are_one_schema() -> None:
    body = {**GOOD, "roles": {"trainer": {"replicas": 2, "cpu": 0.5, "memory": "1G"}}, "timeout": "90s"}
    assert parse(yaml.safe_dump(body)) == parse(json.dumps(body)) == parse(body)


def test_an_unknown_key_is_refused_with_the_nearest_name() -> None:
    assert only_error(entrypont="train.py") == (
        "entrypont",
        paragraph(specification_messages.FIELD_UNKNOWN(), data_messages.DID_YOU_MEAN(name="entrypoint")),
    )


def test_an_unknown_key_of_a_role_is_named_with_its_path() -> None:
    path, message = only_error(roles={"trainer": {"replica": 2}})
    assert (path, message.endswith(data_messages.DID_YOU_MEAN(name="replicas"))) == ("roles.trainer.replica", True)


def test_an_invalid_amount_of_memory_is_refused() -> None:
    assert only_error(roles={"trainer": {"memory": "12 potatoes"}}) == (
        "roles.trainer.memory",
        specification_messages.MEMORY_INVALID(value='"12 potatoes"'),
    )


def test_a_name_with_spaces_is_refused_with_a_proposal() -> None:
    path, message = only_error(name="My digits!")
    assert path == "name"
    assert message.endswith("such as my-digits.")


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("name", {"name": ""}),
        ("name", {"name": "-a"}),
        ("name", {"name": "a" * 64}),
        ("name", {"name": 7}),
        ("roles.trainer.replicas", {"roles": {"trainer": {"replicas": 0}}}),
        ("roles.trainer.replicas", {"roles": {"trainer": {"replicas": True}}}),
        ("roles.trainer.replicas", {"roles": {"trainer": {"replicas": "two"}}}),
        ("roles.pserver.replicas", {"roles": {"pserver": {"replicas": 0}}}),
        ("roles.trainer.min", {"roles": {"trainer": {"replicas": 2, "min": 3, "max": 4}}}),
        ("roles.trainer.max", {"roles": {"trainer": {"replicas": 3, "max": 2}}}),
        ("roles.trainer.cpu", {"roles": {"trainer": {"cpu": "much"}}}),
        ("roles.trainer.cpu", {"roles": {"trainer": {"cpu": 0}}}),
        ("roles.trainer.memory", {"roles": {"trainer": {"memory": "1Mi"}}}),
        ("roles.trainer.memory", {"roles": {"trainer": {"memory": float("nan")}}}),
        ("roles.master.replicas", {"roles": {"master": {"replicas": 3}}}),
        ("roles.master.cpu", {"roles": {"master": {"cpu": 0}}}),
        ("roles.master.memory", {"roles": {"master": {"memory": "1Gi"}}}),
        ("roles.pserver.gpu", {"roles": {"pserver": {"gpu": 1}}}),
        ("roles.worker", {"roles": {"worker": {}}}),
        ("roles", {"roles": ["trainer"]}),
        ("passes", {"passes": 0}),
        ("passes", {"passes": 100_001}),
        ("retries", {"retries": 11}),
        ("priority", {"priority": "urgent"}),
        ("timeout", {"timeout": "soon"}),
        ("timeout", {"timeout": "0s"}),
        ("timeout", {"timeout": "99999d"}),
        ("framework", {"framework": "tensorflow"}),
        ("mode", {"mode": "m_of_n"}),
        ("mode", {"mode": "m_of_n(0)"}),
        ("mode", {"mode": "sync(2)"}),
        ("mode", {"mode": "whenever"}),
        ("entrypoint", {"entrypoint": "other.py"}),
        ("entrypoint", {"entrypoint": "train.sh"}),
        ("files", {"files": {}}),
        ("files.../a.py", {"files": {**GOOD["files"], "../a.py": ""}}),
        ("files./etc/a.py", {"files": {**GOOD["files"], "/etc/a.py": ""}}),
        ("files.a//b.py", {"files": {**GOOD["files"], "a//b.py": ""}}),
        ("files.runtime.py", {"files": {**GOOD["files"], "runtime.py": ""}}),
        ("files.runtime/dist.py", {"files": {**GOOD["files"], "runtime/dist.py": ""}}),
        ("files.train.py/x", {"files": {**GOOD["files"], "train.py/x": ""}}),
        ("files.data.bin", {"files": {**GOOD["files"], "data.bin": b"x"}}),
        ("files.half.txt", {"files": {**GOOD["files"], "half.txt": "\ud800"}}),
        ("files.big.txt", {"files": {**GOOD["files"], "big.txt": "x" * (1024**2 + 1)}}),
        ("files", {"files": {**GOOD["files"], **{f"{n}.txt": "x" * 1024**2 for n in range(5)}}}),
        ("env.A-B", {"env": {"A-B": "1"}}),
        ("env.REGATTA_JOB_ID", {"env": {"REGATTA_JOB_ID": "1"}}),
        ("env.A", {"env": {"A": 1}}),
        ("env.A", {"env": {"A": "\0"}}),
        ("params", {"params": ["lr"]}),
        ("params.1st", {"params": {"1st": 1}}),
        ("params.a b", {"params": {"a b": 1}}),
        ("params.lr", {"params": {"lr": [0.1]}}),
        ("params.lr", {"params": {"lr": None}}),
        ("params.lr", {"params": {"lr": float("nan")}}),
        ("params.lr", {"params": {"lr": float("inf")}}),
        ("params.seed", {"params": {"seed": 2**53 + 1}}),
        ("params.text", {"params": {"text": "x" * 6001}}),
        ("params.text", {"params": {"text": "\0"}}),
        ("params.text", {"params": {"text": "\ud800"}}),
        ("params.lr-head", {"params": {"lr.head": 1, "lr-head": 2}}),
        ("params", {"params": {f"p{number}": "x" * 6000 for number in range(11)}}),
        ("params", {"params": {f"p{number}": 0 for number in range(201)}}),
        ("requirements", {"requirements": "numpy"}),
        ("requirements.0", {"requirements": ["--index-url=x"]}),
        ("requirements.0", {"requirements": ["x @ https://example.org/x.whl"]}),
        ("requirements.1", {"requirements": ["numpy>=1", "not a package!"]}),
        ("requirements.0", {"requirements": ["numpy\n-r other"]}),
    ],
)
def test_an_invalid_field_is_refused_under_its_path(path: str, fields: dict[str, Any]) -> None:
    found, message = only_error(**fields)
    assert found == path
    assert message.endswith((".", "?"))


def test_parameters_keep_their_types() -> None:
    document = 'name: digits\nfiles: {train.py: ""}\nparams: {lr: 1e-3, epochs: 5, nesterov: true, name: "1.0"}'
    found = parse(document, find_dataset=lambda name: None).params
    assert found == {"lr": 0.001, "epochs": 5, "nesterov": True, "name": "1.0"}
    assert list(map(type, found.values())) == [float, int, bool, str]


@pytest.mark.parametrize("mode", ["m_of_n( 2 )", "ssp(0)", "outer(500)", "async"])
def test_a_mode_has_a_number_of_the_users_own(mode: str) -> None:
    assert read(mode=mode).mode == mode.replace(" ", "")


def test_an_unknown_mode_is_refused_with_the_known_ones() -> None:
    expected = training_messages.MODE_UNKNOWN(value="'whenever'")
    assert only_error(mode="whenever")[1] == expected


def test_a_syntax_error_is_reported_with_its_position() -> None:
    with pytest.raises(ValidationFailed) as refused:
        read(files={"train.py": "x = 1\ndef f(:\n"})
    assert refused.value.errors == {"files.train.py": ["Line 2, column 7: invalid syntax."]}
    assert refused.value.extra["positions"] == {"files.train.py": {"line": 2, "column": 7}}


@pytest.mark.parametrize(
    "text", ["(" * 5000 + ")" * 5000, "-" * 300_000 + "1", "a" + ".a" * 200_000, "\0", "{" * 60 + ":"]
)
def test_a_text_made_to_exhaust_the_parser_is_refused(text: str) -> None:
    assert "files.train.py" in errors(files={"train.py": text})


def test_an_unknown_dataset_is_reported_with_the_nearest_name() -> None:
    def none(name: str) -> object:
        raise NotFound("There is no such dataset. Did you mean public/digits?")

    with pytest.raises(ValidationFailed) as refused:
        parse({**GOOD, "dataset": "public/digit"}, find_dataset=none)
    assert refused.value.errors == {"dataset": ["There is no such dataset. Did you mean public/digits?"]}


def test_all_problems_are_reported_at_once() -> None:
    assert set(errors(name="a b", passes=0, retries=-1)) == {"name", "passes", "retries"}


@pytest.mark.parametrize("text", ["a: &x [1]\nb: *x", "{", "- 1", "\t", "", "a: " + "[" * 5000])
def test_a_text_that_is_no_specification_is_refused(text: str) -> None:
    with pytest.raises(ValidationFailed):
        parse(text)


@settings(max_examples=examples(12), deadline=None)
@given(bodies())
def test_a_stored_specification_is_read_back_the_same(body: dict[str, Any]) -> None:
    spec = parse(body)
    kept = json.loads(json.dumps(spec.to_json()))
    assert JobSpec.from_json(kept) == replace(spec, files={})
    assert parse({**kept, "files": GOOD["files"]}) == spec


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(scalars, inner, max_size=3)
)
fields = st.sampled_from([*JobSpec.__dataclass_fields__, "roles", "nonsense"])


@settings(max_examples=examples(40), deadline=None)
@given(st.dictionaries(fields | scalars, anything, max_size=6))
def test_arbitrary_documents_raise_validation_errors_only(body: dict[Any, Any]) -> None:
    with pytest.raises(ValidationFailed) as refused:
        parse(body)
    assert all(isinstance(path, str) and messages for path, messages in refused.value.errors.items())


@given(st.integers(0, 2**50 - 1).filter(lambda amount: amount < 10**15))
def test_memory_is_written_as_it_is_read(amount: int) -> None:
    assert quantities.memory(quantities.memory_text(amount)) == amount


@given(st.integers(0, 10**8))
def test_spans_are_written_as_they_are_read(seconds: int) -> None:
    assert quantities.span(quantities.span_text(timedelta(seconds=seconds))) == timedelta(seconds=seconds)


@pytest.mark.parametrize(("text", "amount"), [("512Mi", 2**29), ("1G", 10**9), ("1.5 Gi", 3 * 2**29), (4096, 4096)])
def test_memory_in_its_usual_spellings(text: object, amount: int) -> None:
    assert quantities.memory(text) == amount


# --- Malicious documents ---------------------------------------------------------------------------------------------
HUGE = "0x" + "f" * 20_000


@pytest.mark.parametrize(
    "text",
    [
        f"{{name: a, passes: {HUGE}}}",
        f"{{name: a, roles: {{trainer: {{cpu: {HUGE}, memory: {HUGE}}}}}}}",
        f"? {HUGE}\n: 1",
        f"env: {{? {HUGE} : x}}",
        "a: " + "[" * 100_000,
        'a: "\\ud800"',
    ],
    ids=["whole number", "amounts", "key", "variable", "nesting", "half a pair"],
)
def test_a_document_made_to_break_the_reader_is_refused_with_a_message(text: str) -> None:
    with pytest.raises(ValidationFailed) as refused:
        parse(text)
    json.dumps(refused.value.errors, ensure_ascii=False).encode()


def test_half_a_surrogate_pair_is_named_in_text_that_can_be_encoded() -> None:
    half = "\ud800"
    found = errors(**{half: 1}, env={half: "x"}, files={f"{half}.py": "", "train.py": ""})
    json.dumps(found, ensure_ascii=False).encode()
    assert {path.split(".")[0] for path in found} == {"?", "env", "files"}


@pytest.mark.parametrize("number", [10**400, 1e400, float("nan")], ids=["long", "infinite", "none"])
def test_a_number_beyond_all_machines_is_no_amount(number: float) -> None:
    assert set(errors(timeout=number, roles={"trainer": {"cpu": number, "memory": number}})) == {
        "timeout",
        "roles.trainer.cpu",
        "roles.trainer.memory",
    }


def test_of_very_many_problems_the_first_are_reported() -> None:
    assert len(errors(**{f"field{number}": 1 for number in range(100_000)})) == 50


@pytest.mark.parametrize(
    ("field", "many"),
    [
        ("env", {f"V{number}": "x" for number in range(201)}),
        ("requirements", ["numpy"] * 201),
        ("files", {f"f{number}.py": "" for number in range(201)}),
    ],
    ids=["env", "requirements", "files"],
)
def test_too_many_of_a_kind_are_counted_and_not_looked_at(field: str, many: object) -> None:
    assert mentions(dict(errors(**{field: many}))[field][0], specification_messages.TOO_MANY)


def test_variables_beyond_the_size_limit_of_a_process_are_refused() -> None:
    assert only_error(env={f"V{number}": "x" * 30_000 for number in range(3)})[0] == "env"


@pytest.mark.parametrize("given", [["sh", "train.sh", "two words"], "sh train.sh 'two words'"])
def test_a_command_is_a_list_or_a_line_and_is_read_back_the_same(given: object) -> None:
    spec = read(framework="command", entrypoint=given)
    assert spec.entrypoint == "sh train.sh 'two words'"
    assert read(framework="command", entrypoint=spec.entrypoint) == spec


def test_parameter_servers_of_a_command_need_a_dataset() -> None:
    path, message = only_error(framework="command", entrypoint="train.sh", roles={"pserver": {"replicas": 1}})
    assert path == "roles.pserver.replicas"
    assert message == specification_messages.PSERVERS_NEED_DATASET(framework="command")


@pytest.mark.parametrize("given", [None, "", [], [""], [1], 7, {"sh": 1}, "sh 'train.sh"])
def test_an_invalid_command_is_refused_with_an_example(given: object) -> None:
    path, message = only_error(framework="command", entrypoint=given)
    assert (path, message) == ("entrypoint", specification_messages.COMMAND_INVALID())


# --- Jobs with their own image ---------------------------------------------------------------------------------------
def with_image(image: object = "registry.example.com/team/train:1", **fields: object) -> dict[str, Any]:
    return {"name": "bare", "image": image, **fields}


def test_a_job_with_an_image_needs_nothing_else() -> None:
    spec = parse(with_image())
    assert (spec.framework, spec.image, spec.entrypoint) == ("command", "registry.example.com/team/train:1", "")
    assert (spec.pserver.replicas, dict(spec.files)) == (0, {})
    assert JobSpec.from_json(spec.to_json()) == spec == parse(spec.to_json())


def test_a_job_that_was_stored_before_images_existed_has_none() -> None:
    kept = read().to_json()
    del kept["image"]
    assert JobSpec.from_json(kept).image == ""


@pytest.mark.parametrize(
    "image",
    [
        *("python", "python:3.11-slim", "team/train", "localhost/x", "10.77.0.2:5000/base/python:3.11"),
        f"registry.example.com/a/b__c/d-e.f:v1.0_x@sha256:{'0' * 64}",
    ],
)
def test_all_usual_image_names_are_accepted(image: str) -> None:
    assert parse(with_image(image)).image == image


@pytest.mark.parametrize(
    "image",
    [
        *("Python", "a b", "-x", "a/../b", "a//b", "a:b:c", "https://registry/a", "a@sha256:12", "x" * 301, "a;rm"),
        *("a\nb", "$(x)", 7, ["a"]),
    ],
)
def test_an_invalid_image_name_is_refused(image: object) -> None:
    with pytest.raises(ValidationFailed) as refused:
        parse(with_image(image))
    assert "image" in refused.value.errors


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("files", {"files": {"train.py": ""}}),
        ("requirements", {"requirements": ["pandas"]}),
        ("framework", {"framework": "native"}),
        ("framework", {"framework": "paddle"}),
        ("roles.pserver.replicas", {"roles": {"pserver": {"replicas": 1}}}),
        ("roles.trainer.max", {"roles": {"trainer": {"replicas": 1, "max": 2}}}),
    ],
)
def test_fields_of_the_platform_are_refused_beside_an_image(path: str, fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationFailed) as refused:
        parse(with_image(**fields))
    assert path in refused.value.errors


# --- Frameworks ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("framework", "dataset", "servers"),
    [("native", "", 1), ("command", "", 0), ("command", "public/digits", 1), ("paddle", "", 0), ("torch", "", 0)],
)
def test_the_default_number_of_parameter_servers(framework: str, dataset: str, servers: int) -> None:
    assert read(framework=framework, entrypoint="train.py", dataset=dataset).pserver.replicas == servers


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("roles.pserver.replicas", {"framework": "torch", "roles": {"pserver": {"replicas": 1}}}),
        ("roles.pserver.replicas", {"framework": "native", "roles": {"pserver": {"replicas": 0}}}),
        ("roles.trainer.min", {"framework": "torch", "roles": {"trainer": {"replicas": 2, "min": 1}}}),
        ("roles.trainer.max", {"framework": "paddle", "roles": {"trainer": {"replicas": 2, "max": 8}}}),
        (
            "roles.trainer.max",
            {"framework": "command", "entrypoint": "sh", "roles": {"trainer": {"max": 8}, "pserver": {"replicas": 0}}},
        ),
        ("elastic", {"framework": "torch", "elastic": True}),
        ("roles.master.replicas", {"framework": "paddle", "roles": {"master": {"replicas": 2}}}),
        ("roles.master.cpu", {"framework": "paddle", "roles": {"master": {"cpu": 0.5}}}),
    ],
)
def test_fields_that_a_framework_lacks_are_refused(path: str, fields: dict[str, Any]) -> None:
    found, _ = only_error(**fields)
    assert found == path


@pytest.mark.parametrize("framework", ["native", "paddle", "torch", "command"])
def test_a_stored_job_of_each_framework_is_read_back_the_same(framework: str) -> None:
    spec = read(framework=framework, entrypoint="train.py", roles={"trainer": {"replicas": 3}})
    assert replace(JobSpec.from_json(spec.to_json()), files=spec.files) == spec
    assert read(**{**spec.to_json(), "files": dict(spec.files)}) == spec


def test_a_pytorch_job_needs_all_its_trainers() -> None:
    spec = read(framework="torch", roles={"trainer": {"replicas": 3}})
    assert (spec.trainer.min, spec.trainer.max) == (3, 3)
