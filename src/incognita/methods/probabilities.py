"""What is left of the probability when the answer has taken its share."""

from torch import Tensor

from incognita.shapes import Float


def one_minus_largest(probabilities: Float[Tensor, "n classes"]) -> Float[Tensor, "n"]:
    """Add up all probabilities but the largest.

    1 - max p would round to 0 for every row whose largest is within 1e-16 of 1; the sum of the
    others keeps all digits of them.

    >>> import torch
    >>> one_minus_largest(torch.tensor([[1.0, 1e-30, 1e-31], [0.5, 0.5, 0.0]]))
    tensor([1.1000e-30, 5.0000e-01])
    """
    largest = probabilities.argmax(dim=1, keepdim=True)
    return probabilities.scatter(1, largest, 0.0).sum(dim=1)
