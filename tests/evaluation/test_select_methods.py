import pytest

from incognita.calls import split_calls
from incognita.containers.needs import Needs
from incognita.errors import InvalidDataError, UnknownNameError
from incognita.evaluation.select_methods import Capabilities, select_methods
from incognita.methods import list_methods, load_method
from incognita.methods.knn import KNN
from incognita.methods.parse import parse_method

FULL = Capabilities().available


def test_all_means_every_method_the_model_can_feed():
    asked = select_methods("all", Capabilities())
    assert set(asked.methods) | set(asked.skipped) == set(list_methods())
    assert set(asked.skipped) == {"godin", "ensemble", "lard", "safe"}
    assert "several networks" in asked.skipped["ensemble"]


def test_methods_on_maps_inside_boxes_are_for_detectors():
    assert (
        select_methods("all", Capabilities())
        .skipped["lard"]
        .startswith("needs a latent layer pooled over boxes")
    )
    with pytest.raises(InvalidDataError, match=r"safe needs shortcut layers .* \(a detector\)"):
        select_methods("safe", Capabilities(FULL | Needs.LATENT))
    asked = select_methods("all", Capabilities(FULL | Needs.LATENT | Needs.SHORTCUTS))
    assert {"lard", "safe"} <= set(asked.methods)


def test_without_a_linear_head_methods_on_logits_still_work():
    offer = Capabilities(
        FULL & ~(Needs.HEAD | Needs.FEATURES), head_reason="no linear layer gives the logits"
    )
    asked = select_methods("all", offer)
    assert {"msp", "energy", "openmax", "kl-matching"} <= set(asked.methods)
    assert asked.skipped["knn"] == "needs a linear head (no linear layer gives the logits)"


def test_a_named_method_that_cannot_run_is_refused_with_those_that_can():
    with pytest.raises(InvalidDataError, match=r"knn needs .* These methods can run here: msp, "):
        select_methods("msp, knn", Capabilities(FULL & ~(Needs.HEAD | Needs.FEATURES)))


def test_without_training_images_methods_that_learn_are_left_out():
    asked = select_methods("all", Capabilities(FULL & ~Needs.KNOWN, frozenset({"validation"})))
    assert "knn" in asked.skipped
    assert "energy" in asked.methods


def test_parameters_may_stand_in_brackets():
    assert parse_method("knn(k=10)").k == 10
    assert parse_method("react(percentile=95)").percentile == 95
    assert split_calls("knn(k=10), msp") == ["knn(k=10)", "msp"]


@pytest.mark.parametrize(
    "text",
    [
        "knn(10)",
        "knn(k=",
        "knn(k=__import__('os'))",
        "k nn",
        "react+",
        "knn(**{})",
        "knn(k={[]: 1})",
        "knn(k=1)(2)",
    ],
)
def test_bad_spellings_are_refused(text):
    with pytest.raises(InvalidDataError, match=r"Write"):
        parse_method(text)


def test_a_typo_gets_a_suggestion():
    with pytest.raises(UnknownNameError, match="Did you mean energy"):
        select_methods("enrgy", Capabilities())


def test_a_method_asked_for_twice_is_refused():
    with pytest.raises(InvalidDataError, match="twice"):
        select_methods("msp, msp", Capabilities())


def test_methods_may_be_given_as_objects():
    asked = select_methods({"mine": load_method("knn", k=3)}, Capabilities())
    assert asked.methods["mine"].k == 3


def test_no_method_at_all_is_refused():
    with pytest.raises(InvalidDataError, match="Expected at least one method"):
        select_methods(" , ", Capabilities())


def test_each_method_of_a_chain_may_have_parameters_of_its_own():
    assert parse_method("react+knn(k=10)").scorer.k == 10
    both = parse_method("react(percentile=95)+knn(k=10)")
    assert (both.percentile, both.scorer.k) == (95, 10)
    assert list(select_methods("react(percentile=95)+knn(k=10), msp", Capabilities()).methods) == [
        "react(percentile=95)+knn(k=10)",
        "msp",
    ]


def test_a_registered_name_with_a_plus_comes_before_its_parts():
    assert parse_method("dice+react(clip_percentile=80)").scorer.percentile == 80
    apart = parse_method("dice(percentile=70)+react(percentile=80)")
    assert (apart.percentile, apart.scorer.percentile) == (70, 80)
    assert parse_method("dice+react(percentile=80)+knn(k=3)").scorer.scorer.k == 3


def test_names_are_not_cut_inside_nested_brackets_or_quotes():
    nested = "oodl(nu=0.1, kernel=('a', 'b'))"
    assert split_calls(f"msp, {nested}") == ["msp", nested]
    assert split_calls("oodl(layer='a), b'), msp") == ["oodl(layer='a), b')", "msp"]
    assert parse_method("oodl(layer='a+b)(')").layer == "a+b)("


def test_a_parameter_given_twice_is_refused():
    with pytest.raises(InvalidDataError, match="k is given twice"):
        parse_method("knn(k=1, k=2)")


@pytest.mark.parametrize("methods", ["all, msp", ["msp", "all"]])
def test_all_stands_alone(methods):
    with pytest.raises(InvalidDataError, match="cannot be combined"):
        select_methods(methods, Capabilities())
    assert len(select_methods(["all"], Capabilities()).methods) > 30


def test_capital_letters_get_a_suggestion():
    with pytest.raises(UnknownNameError, match="Did you mean msp"):
        select_methods("MSP", Capabilities())


@pytest.mark.parametrize(
    ("n_layers", "left_out"),
    [
        (0, {"gram", "mds-ensemble", "rankfeat"}),
        (1, {"rankfeat"}),
        (2, set()),
    ],
)
def test_methods_on_layers_need_as_many_as_they_look_at(n_layers, left_out):
    asked = select_methods("all", Capabilities(n_layers=n_layers))
    assert set(asked.skipped) == left_out | {"godin", "ensemble", "lard", "safe"}


def test_methods_that_calibrate_take_validation_images_or_else_training_images():
    learn_on_either = {"temperature", "kl-matching", "adascale"}
    nothing = select_methods("all", Capabilities(FULL & ~(Needs.KNOWN | Needs.VALIDATION)))
    assert learn_on_either <= set(nothing.skipped)
    for offer in (
        Capabilities(FULL & ~Needs.KNOWN, frozenset({"validation"})),
        Capabilities(FULL & ~Needs.VALIDATION),
    ):
        assert learn_on_either <= set(select_methods("all", offer).methods)


def test_temperature_needs_the_labels_of_the_images_it_learns_from():
    unlabeled = Capabilities(labeled=frozenset({"train"}))
    assert (
        unlabeled.missing_for(load_method("temperature")) == "the classes of the validation images"
    )
    assert unlabeled.missing_for(load_method("mds-ensemble")) is None
    only_train = Capabilities(FULL & ~Needs.VALIDATION, frozenset())
    assert (
        only_train.missing_for(load_method("temperature")) == "the classes of the training images"
    )
    assert (
        Capabilities(labeled=frozenset({"validation"})).missing_for(load_method("temperature"))
        is None
    )


def test_one_method_may_be_given_by_itself():
    assert select_methods(KNN(k=5), Capabilities()).methods["knn"].k == 5


@pytest.mark.usefixtures("outside_tests")
@pytest.mark.parametrize("methods", [KNN, [KNN], {"mine": KNN}])
def test_a_class_is_refused(methods):
    with pytest.raises(InvalidDataError, match=r"the class KNN. Write KNN\(\)\.$"):
        select_methods(methods, Capabilities())


@pytest.mark.usefixtures("outside_tests")
@pytest.mark.parametrize("methods", [3, [3], {"mine": 3}, None])
def test_what_is_no_method_is_refused(methods):
    with pytest.raises(InvalidDataError, match="Expected a method or its name"):
        select_methods(methods, Capabilities())


def test_two_methods_of_one_class_want_names():
    with pytest.raises(InvalidDataError, match=r"twice\. Give a mapping of names to methods"):
        select_methods([load_method("knn", k=5), load_method("knn", k=10)], Capabilities())


def test_a_name_that_would_pass_for_a_searched_method_is_refused():
    with pytest.raises(InvalidDataError, match=r"ends in ' \(tuned\)'"):
        select_methods({"knn (tuned)": load_method("knn")}, Capabilities())
