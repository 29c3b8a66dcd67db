import pytest

from incognita.errors import InvalidDataError, UnknownNameError
from incognita.methods import list_methods, load_method
from incognita.running.asked_methods import Offer, ask, make, split_names


def test_all_means_every_method_the_model_can_feed():
    asked = ask("all", Offer())
    assert set(asked.methods) | set(asked.skipped) == set(list_methods())
    assert set(asked.skipped) == {"godin", "ensemble"}
    assert "several networks" in asked.skipped["ensemble"]


def test_without_a_linear_head_methods_on_logits_still_work():
    offer = Offer(has_head=False, head_reason="no linear layer gives the logits")
    asked = ask("all", offer)
    assert {"msp", "energy", "openmax", "kl-matching"} <= set(asked.methods)
    assert "no linear layer" in asked.skipped["knn"]


def test_a_named_method_that_cannot_run_is_refused_with_those_that_can():
    with pytest.raises(InvalidDataError, match=r"knn needs .* These still work: msp, "):
        ask("msp, knn", Offer(has_head=False))


def test_without_training_images_methods_that_learn_are_left_out():
    asked = ask("all", Offer(has_train=False, has_labels=False))
    assert "knn" in asked.skipped
    assert "energy" in asked.methods


def test_parameters_may_stand_in_brackets():
    assert make("knn(k=10)").k == 10
    assert make("react(percentile=95)").percentile == 95
    assert split_names("knn(k=10), msp") == ["knn(k=10)", "msp"]


@pytest.mark.parametrize("text", ["knn(10)", "knn(k=", "knn(k=__import__('os'))", "k nn"])
def test_bad_spellings_are_refused(text):
    with pytest.raises(InvalidDataError, match=r"write"):
        make(text)


def test_a_typo_gets_a_suggestion():
    with pytest.raises(UnknownNameError, match="Did you mean energy"):
        ask("enrgy", Offer())


def test_a_method_asked_for_twice_is_refused():
    with pytest.raises(InvalidDataError, match="twice"):
        ask("msp, msp", Offer())


def test_methods_may_be_given_as_objects():
    asked = ask({"mine": load_method("knn", k=3)}, Offer())
    assert asked.methods["mine"].k == 3


def test_no_method_at_all_is_refused():
    with pytest.raises(InvalidDataError, match="No method was named"):
        ask(" , ", Offer())
