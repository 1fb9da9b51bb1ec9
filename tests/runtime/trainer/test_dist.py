import numpy as np
import pytest

from runtime import dist
from runtime.errors import UsageError
from runtime.messages import training as messages
from tests.messages import pattern

pytestmark = pytest.mark.usefixtures("fresh")


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """A process without a call of init yet, in a directory of its own, and without a job."""
    monkeypatch.setattr(dist, "_job", None)
    monkeypatch.delenv("REGATTA_AGENT_FD", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def loss_and_grad(p, x, y):
    z = x @ p["w"] + p["b"]
    z -= z.max(1, keepdims=True)
    e = np.exp(z)
    s = e / e.sum(1, keepdims=True)
    cost = -np.log(s[np.arange(len(y)), y]).mean()
    s[np.arange(len(y)), y] -= 1
    s /= len(y)
    return cost, {"w": x.T @ s, "b": s.sum(0)}


def zeros():
    return {"w": np.zeros((64, 10), "f4"), "b": np.zeros(10, "f4")}


def test_the_first_example_of_the_guide_runs_as_written(fresh):
    job = dist.init()
    p = job.params(zeros(), opt=dist.Momentum(0.1, 0.9))
    costs = []
    for x, y in job.steps(job.reader("public/digits", batch=128, shuffle=4096), passes=5):
        cost, g = loss_and_grad(p, x, y)
        p.push_pull(g, n=len(y))
        job.report(cost=cost)
        costs.append(cost)
    job.save_model("model.npz")
    assert costs[-1] < costs[0] / 4
    assert np.load(fresh / "model.npz")["w"].tobytes() == p["w"].tobytes()


def test_the_loop_of_the_first_version_emits_its_events():
    events = []
    job = dist.init()
    p = job.params(zeros(), opt=dist.SGD(0.1))
    dist.train(loss_and_grad, p, reader=job.reader("public/digits", batch=128), passes=2, event_handler=events.append)
    passes = [type(event).__name__ for event in events if isinstance(event, dist.BeginPass | dist.EndPass)]
    ends = [event for event in events if isinstance(event, dist.EndIteration)]
    assert passes == ["BeginPass", "EndPass"] * 2
    assert [event.batch_id for event in ends if event.pass_id == 0] == list(range(len(ends) // 2))
    assert ends[-1].cost < ends[0].cost


def test_a_handler_receives_only_the_events_it_subscribed_to():
    events = []
    job = dist.init()
    job.on(dist.EndPass, events.append)
    for _ in job.steps(job.reader("public/diabetes"), passes=3):
        pass
    assert [event.pass_id for event in events] == [0, 1, 2]


def test_each_pass_has_every_record_once():
    job = dist.init()
    labels = [float(y) for _x, y in job.steps(job.reader("public/diabetes", shuffle=100), passes=2)]
    _x, y = job.load("public/diabetes", "train")
    half = len(labels) // 2
    assert sorted(labels[:half]) == sorted(labels[half:]) == sorted(y.tolist())
    assert labels[:half] != labels[half:]


def test_a_reader_that_is_called_iterates_over_one_pass():
    job = dist.init()
    assert sum(len(y) for _x, y in job.reader("public/digits", batch=50)()) == 1437


def test_records_are_decoded_before_they_are_stacked():
    job = dist.init()
    reader = job.reader("public/digits", batch=4, decode=lambda record: (record[0] * 2, float(record[1])))
    x, y = next(reader())
    assert (x.shape, x.dtype, y.dtype) == ((4, 64), np.float32, np.float32)


def test_the_parameters_of_the_job_are_its_configuration(monkeypatch):
    monkeypatch.setenv("REGATTA_PARAMS", '{"lr": 0.1, "nesterov": true, "name": "adam"}')
    config = dist.init().config
    assert dict(config) == {"lr": 0.1, "nesterov": True, "name": "adam"}
    assert (config["lr"], config.get("epochs", 5)) == (0.1, 5)


def test_a_parameter_that_the_job_does_not_have_is_refused_with_those_it_has(monkeypatch):
    monkeypatch.setenv("REGATTA_PARAMS", '{"lr": 0.1, "batch": 64}')
    with pytest.raises(UsageError, match=pattern(messages.PARAMETER_MISSING, name="rate", names="batch, lr")):
        dist.init().config["rate"]


def test_a_second_init_is_refused():
    dist.init()
    with pytest.raises(UsageError, match=pattern(messages.INIT_CALLED_TWICE)):
        dist.init()


def test_a_reader_without_a_name_lists_the_datasets():
    with pytest.raises(
        UsageError, match=pattern(messages.DATASET_NOT_SPECIFIED, names="public/diabetes, public/digits")
    ):
        dist.init().reader()


def test_an_unknown_dataset_gets_the_nearest_name():
    with pytest.raises(UsageError, match="public/digits"):
        dist.init().reader("public/digit")


@pytest.mark.parametrize("value", ["low", None, np.zeros(2), True])
def test_a_report_of_what_is_no_number_is_refused(value):
    with pytest.raises(UsageError, match=pattern(messages.REPORT_VALUE_INVALID, name="cost")):
        dist.init().report(cost=value)


def test_a_second_set_of_parameters_is_refused():
    job = dist.init()
    job.params(zeros())
    with pytest.raises(UsageError, match=pattern(messages.PARAMETERS_ALREADY_SET)):
        job.params(zeros())


def test_an_unknown_mode_is_refused():
    with pytest.raises(UsageError, match=pattern(messages.MODE_UNKNOWN)):
        dist.init().params(zeros(), mode="sometimes")


def test_a_model_in_another_format_is_written_by_a_function(fresh):
    assert dist.init().save_model("model.txt", write=lambda path: path.write_text("42"))
    assert (fresh / "model.txt").read_text() == "42"


def test_a_model_is_not_saved_outside_of_the_output_directory():
    job = dist.init()
    job.params(zeros())
    with pytest.raises(UsageError, match=pattern(messages.MODEL_PATH_OUTSIDE_OUTPUT)):
        job.save_model("../model.npz")


def test_saving_without_parameters_is_refused():
    with pytest.raises(UsageError, match=pattern(messages.NO_PARAMETERS_TO_SAVE)):
        dist.init().save_model("model.npz")


def test_an_unknown_wire_is_refused():
    with pytest.raises(UsageError, match="f32, bf16"):
        dist.init().params(zeros(), wire="f8")
