"""A sketch of the output head: which tokens are worth multiplying exactly.

The head is the largest matrix of a small model and is read whole for every token, though only
the tokens near the top matter. The sketch projects the hidden state on the few directions in
which logits vary most on real code, and multiplies them with a narrow INT4 matrix; the tokens
near its top are then multiplied exactly (`native/top.h`, which also makes sure that none was
missed). It is a low-rank screening of the softmax as in Chen et al., 2018 (Learning to Screen).

For hidden states of second moment C, the best projection of rank d for the head W is given by
the leading eigenvectors V of C^1/2 W^T W C^1/2: W h ~ (W C^1/2 V) (V^T C^-1/2 h).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.quantization.formats import Format
from engine.quantization.quantize import quantize
from engine.quantization.weights import Int4Weight, Int8Weight, Weight

DIRECTIONS = 320  # on real code the best token is among the first 256 then 998 times in 1,000
SMALLEST_VOCABULARY = 16384  # below it the whole head is read as quickly

_RIDGE = 0.05  # of the mean variance: directions that calibration never saw keep some weight
_SLAB_ROWS = 8192


@dataclass(frozen=True, slots=True)
class Sketch:
    """An approximate head.

    Attributes:
        projection: INT8_DYNAMIC [directions, hidden].
        table: INT4 [vocab, directions].
    """

    projection: Int8Weight
    table: Int4Weight

    @property
    def nbytes(self) -> int:
        """Bytes of both matrices."""
        return self.projection.nbytes + self.table.nbytes


def worth_sketching(vocab: int, hidden: int) -> bool:
    """Whether a head of this shape is large enough for a sketch to pay."""
    return vocab >= SMALLEST_VOCABULARY and hidden >= 2 * DIRECTIONS


def build_sketch(head: Weight, second_moment: torch.Tensor) -> Sketch:
    """Make the sketch of a head.

    Args:
        head: [vocab, hidden].
        second_moment: float32 [hidden, hidden], the mean of h h^T over the hidden states that
            the head multiplies on calibration code.
    """
    hidden = head.columns
    moment = second_moment.double()
    moment = moment + torch.eye(hidden).double() * moment.diagonal().mean() * _RIDGE
    values, vectors = torch.linalg.eigh(moment)
    root = vectors @ (values.sqrt().unsqueeze(1) * vectors.T)
    inverse = vectors @ (values.rsqrt().unsqueeze(1) * vectors.T)
    weight = head.dequantize()
    gram = torch.zeros(hidden, hidden).double()
    for rows in weight.split(_SLAB_ROWS):
        gram += (rows.T @ rows).double()
    _, directions = torch.linalg.eigh(root @ gram @ root)
    leading = directions[:, -DIRECTIONS:].flip(1)
    into, out = (root @ leading).float(), (leading.T @ inverse).float()
    table = torch.cat([rows @ into for rows in weight.split(_SLAB_ROWS)])
    projection = quantize(out.contiguous(), Format.INT8_DYNAMIC)
    sketched = quantize(table, Format.INT4)
    assert isinstance(projection, Int8Weight)
    assert isinstance(sketched, Int4Weight)
    return Sketch(projection, sketched)
