"""From what people type to a policy, and never from one kind of threshold to the other."""

import pytest

from incognita.decisions import CONFIDENCE_POLICIES, SCORE_POLICIES
from incognita.decisions.confidence_thresholds import F1Optimal, FixedConfidence, LRPOptimal
from incognita.decisions.parse import confidence_policy, score_policy
from incognita.decisions.thresholds import ConfidencePolicy, ScorePolicy
from incognita.decisions.unknown_thresholds import Fixed, HarmonicMean, KnownGaussian, KnownQuantile
from incognita.errors import InvalidDataError, UnknownNameError

SCORE_CASES = {
    "quantile": KnownQuantile(0.95),
    " quantile ": KnownQuantile(),
    "quantile()": KnownQuantile(),
    "quantile(share=0.99)": KnownQuantile(0.99),
    "quantile (0.99)": KnownQuantile(0.99),
    "quantile(share=1)": KnownQuantile(1.0),
    "gaussian": KnownGaussian(1.645),
    "gaussian(n_std=2)": KnownGaussian(2.0),
    "harmonic-mean": HarmonicMean(),
    "fixed(12.5)": Fixed(12.5),
    "fixed(value=-12.5)": Fixed(-12.5),
    "12.5": Fixed(12.5),
    "-3": Fixed(-3.0),
    "1e-3": Fixed(0.001),
    12.5: Fixed(12.5),
    12: Fixed(12.0),
}
CONFIDENCE_CASES = {
    "f1": F1Optimal(),
    "lrp": LRPOptimal(0.1),
    "lrp(tau=0.5)": LRPOptimal(0.5),
    "fixed(0.5)": FixedConfidence(0.5),
    "0.5": FixedConfidence(0.5),
    1: FixedConfidence(1.0),
}


@pytest.mark.parametrize(("asked", "policy"), SCORE_CASES.items())
def test_a_score_policy_is_what_was_typed(asked, policy):
    assert score_policy(asked) == policy
    assert score_policy(policy) is policy


@pytest.mark.parametrize(("asked", "policy"), CONFIDENCE_CASES.items())
def test_a_confidence_policy_is_what_was_typed(asked, policy):
    assert confidence_policy(asked) == policy
    assert confidence_policy(policy) is policy


@pytest.mark.parametrize("policy", [*SCORE_CASES.values(), *CONFIDENCE_CASES.values()], ids=str)
def test_a_policy_reads_back_what_it_says_of_itself(policy):
    read = score_policy if isinstance(policy, ScorePolicy) else confidence_policy
    assert read(str(policy)) == policy


def test_every_registered_policy_bears_its_name_and_is_of_its_kind():
    for registry, kind in ((SCORE_POLICIES, ScorePolicy), (CONFIDENCE_POLICIES, ConfidencePolicy)):
        for name in registry.names():
            made = registry.get(name)
            assert made.name == name
            assert issubclass(made, kind)
    assert not issubclass(ScorePolicy, ConfidencePolicy)


TAU = "tau, the threshold on the unknown score that says which boxes are unknown"
T_STAR = r"t\*, the threshold on the detector's confidence that says which boxes are kept"


@pytest.mark.parametrize("asked", ["f1", "lrp", "lrp(tau=0.5)", F1Optimal(), FixedConfidence(0.5)])
def test_a_confidence_policy_is_refused_where_tau_is_chosen(asked):
    with pytest.raises(
        InvalidDataError,
        match=rf"Expected a policy for {TAU}, got \S+, which sets {T_STAR}\. "
        "Choose one of: quantile, gaussian, harmonic-mean, fixed",
    ):
        score_policy(asked)


@pytest.mark.parametrize("asked", ["quantile", "harmonic-mean", KnownGaussian(), Fixed(0.5)])
def test_a_score_policy_is_refused_where_t_star_is_chosen(asked):
    with pytest.raises(
        InvalidDataError,
        match=rf"Expected a policy for {T_STAR}, got \S+, which sets {TAU}\. Choose one",
    ):
        confidence_policy(asked)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ("Quantile", "No score policy is called 'Quantile'. Did you mean quantile?"),
        ("gausian(2)", "No score policy is called 'gausian'. Did you mean gaussian?"),
        ("harmonic_mean", "No score policy is called 'harmonic_mean'. Did you mean harmonic-mean?"),
        ("quantile(shar=0.9)", "No parameter of quantile is called 'shar'. Did you mean share?"),
        ("harmonic-mean(a=1)", "No parameter of harmonic-mean is called 'a'. There is none"),
    ],
)
def test_a_typo_is_answered_with_a_suggestion(asked, sentence):
    with pytest.raises(UnknownNameError) as error:
        score_policy(asked)
    assert str(error.value).startswith(sentence)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ("", "Expected the name of a score policy, got ''. Write quantile(share=0.99)"),
        ("quantile(0.9", "Expected the name of a score policy, got 'quantile(0.9'"),
        ("quantile 0.9", "Expected the name of a score policy, got 'quantile 0.9'"),
        ("fixed", "fixed needs a value. Write fixed(0.5), or 0.5 alone."),
        ("quantile(0.9, 0.8)", "Expected at most 1 parameters of quantile, got 2."),
        ("quantile(0.9, share=0.8)", "share of quantile is given twice"),
        (
            "quantile(share=0.9, share=0.8)",
            "Expected parameters of quantile, got (share=0.9, share",
        ),
        ("quantile(share='a')", "Expected share of quantile to be a number, got 'a'."),
        ("quantile(share=True)", "Expected share of quantile to be a number, got True."),
        (
            "quantile(share=0.9)(1)",
            "Expected parameters of quantile, got (share=0.9)(1): there",
        ),
        ("quantile(share=print(1))", "Expected parameters of quantile, got (share=print(1))"),
        ("quantile(*[1])", "Expected parameters of quantile, got (*[1])"),
        (
            "quantile(**{'share': 1})",
            "Expected parameters of quantile, got (**{'share': 1})",
        ),
        ("quantile(share=)", "Expected parameters of quantile, got (share=)"),
        ("quantile(share=95)", "share must be above 0 and at most 1, but is 95.0"),
        ("nan", "Expected a finite number as value of fixed, got nan."),
        ("fixed(1e999)", "Expected a finite number as value of fixed, got inf."),
        (f"fixed({10**400})", "Expected a finite number as value of fixed, got inf."),
        (10**400, "Expected a finite number as value of fixed, got inf."),
        (f"fixed({'(' * 5000}1{')' * 5000})", "Expected parameters of fixed, got (((("),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(asked, sentence):
    with pytest.raises((InvalidDataError, UnknownNameError)) as error:
        score_policy(asked)
    assert str(error.value).startswith(sentence)


@pytest.mark.usefixtures("outside_tests")
@pytest.mark.parametrize("asked", [None, True, ["quantile"], KnownQuantile])
def test_what_is_neither_text_nor_number_nor_policy_is_refused(asked):
    with pytest.raises(InvalidDataError, match="Expected a score policy by name or as a number"):
        score_policy(asked)
