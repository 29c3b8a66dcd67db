"""My method: one class. It is checked, compared with others, and shown in the report.

python examples/my_method.py writes my_method.html.
incognita check examples/my_method.py runs the same checks.
"""

from dataclasses import dataclass

import torch
from torch.nn.functional import normalize

import incognita
from incognita.methods import Method, Needs, check_method


@dataclass(eq=False)
class NearestMean(Method):
    r"""Angle between the features and the mean features of the nearest class.

    $$ s(x) = 1 - \max_c \cos(z(x), \mu_c) $$ with z the features, $\mu_c$ their mean in class c.
    """

    needs = Needs.FEATURES | Needs.KNOWN | Needs.LABELS

    def fit_statistics(self, known, validation):
        """Learn from the outputs of known rows; a class without rows has no mean."""
        features, labels = known.features.double(), known.labels
        means = [features[labels == c].mean(dim=0) for c in labels.unique()]
        self.means_ = normalize(torch.stack(means))

    def score_rows(self, rows):
        """Return one number per row, higher for more unknown."""
        return 1 - (normalize(rows.features.double()) @ self.means_.T).amax(dim=1)


if __name__ == "__main__":
    for check in check_method(NearestMean()):
        print(check.status, check.check, check.sentence)
    methods = {"nearest-mean": NearestMean(), "msp": "msp", "knn": "knn"}
    report = incognita.evaluate(benchmark="terra/standard", methods=methods, limit=200)
    print(report)
    report.save_html("my_method.html")
