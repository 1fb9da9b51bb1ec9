import pytest

from runtime import contract
from runtime.errors import Lost, Refused
from runtime.trainer.environment import Attached, guard


def gave_up_with(error):
    reasons = []
    with guard(reasons.append)():
        raise error
    return reasons


@pytest.mark.parametrize("code", ["fenced", "replaced"])
def test_a_trainer_that_has_lost_its_place_ends_without_blaming_its_script(code):
    assert gave_up_with(Refused(code, "Another has its place.")) == ["Another has its place."]


def test_the_loss_of_another_process_is_no_error_of_the_script_either():
    assert gave_up_with(Lost("The master is gone.")) == ["The master is gone."]


def test_a_refusal_of_what_the_script_asked_for_reaches_the_script():
    with pytest.raises(Refused):
        gave_up_with(Refused("conflict", "Declare the same in all."))


class Deserted:
    """A channel to an agent that never reports other members."""

    def on_fenced(self, do):
        pass

    def on_pause(self, do):
        pass

    def paused(self, stopped, version):
        pass

    def hello(self):
        pass

    def wait_for_members(self, holds, seconds):
        raise TimeoutError(f"Nobody came within {seconds:g} s.")


def test_a_trainer_waits_for_the_others_as_long_as_the_platform_sets():
    with pytest.raises(Lost, match=r"within 630 s"):
        Attached(contract.read({contract.GATHER: "630", contract.WIRE_SECRET: "secret"}), Deserted())
