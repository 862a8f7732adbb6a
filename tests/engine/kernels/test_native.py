"""The compiled kernels, each instruction set this chip has, against plain FP32 arithmetic."""

from __future__ import annotations

import ctypes

import pytest
import torch
from torch.nn import functional

from engine.errors import ConfigError
from engine.kernels import native
from engine.kernels.native import Kernels, NativeMatrix, RmsNorm, Sketched
from engine.quantization.error import relative_error
from engine.quantization.formats import Format
from engine.quantization.linear import round_activations
from engine.quantization.quantize import quantize
from engine.quantization.weights import DenseWeight, Int4Weight, Int8Weight

FORMATS = [Format.INT8_DYNAMIC, Format.INT4, Format.INT4_ZP]
EXACT = 1e-9  # of error power: sums in another order
BF16 = 6e-5


@pytest.fixture(params=native.NAMES)
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kernels:
    monkeypatch.setenv(native.VARIABLE, request.param)
    try:
        found = native.load()
    except ConfigError as error:
        pytest.skip(error.what)
    assert found is not None
    assert found.name == request.param
    return found


def stored(format: Format, rows: int, columns: int) -> Int8Weight | Int4Weight:
    torch.manual_seed(rows + columns)
    weight = quantize(torch.randn(rows, columns), format)
    assert not isinstance(weight, DenseWeight)
    return weight


def int8(values: torch.Tensor) -> Int8Weight:
    weight = quantize(values, Format.INT8_DYNAMIC)
    assert isinstance(weight, Int8Weight)
    return weight


@pytest.mark.parametrize("m", [1, 2, 3, 8, 9, 23])
@pytest.mark.parametrize("shape", [(96, 64), (50, 160), (16, 32), (1, 2592)])
@pytest.mark.parametrize("format", FORMATS)
def test_few_rows_are_exact_but_for_the_rounded_activations(
    kernels: Kernels, format: Format, shape: tuple[int, int], m: int
) -> None:
    weight, bias = stored(format, *shape), torch.randn(shape[0])
    x = torch.randn(m, shape[1]) * torch.logspace(-3, 2, shape[1])
    y = torch.empty(m, shape[0])
    kernels.linear(NativeMatrix(weight, bias), x, y, norm=None, swiglu=False, add=False)
    expected = functional.linear(round_activations(x), weight.dequantize(), bias)
    # A value between two codes may be rounded either way: one step of 1/127 in some places.
    assert relative_error(y, expected) < 1e-7


@pytest.mark.parametrize("m", [24, 31, 33, 100, 300])
@pytest.mark.parametrize("shape", [(96, 64), (50, 160), (1, 2592)])
@pytest.mark.parametrize("format", FORMATS)
def test_many_rows(kernels: Kernels, format: Format, shape: tuple[int, int], m: int) -> None:
    weight, bias = stored(format, *shape), torch.randn(shape[0])
    x, before = torch.randn(m, shape[1]), torch.randn(m, shape[0])
    for add in (False, True):
        y = before.clone()
        kernels.linear(NativeMatrix(weight, bias), x, y, norm=None, swiglu=False, add=add)
        expected = functional.linear(x, weight.dequantize(), bias) + (before if add else 0)
        assert relative_error(y, expected) < BF16


@pytest.mark.parametrize("m", [1, 3, 40, 131])
@pytest.mark.parametrize("format", FORMATS)
def test_mlp_is_two_products_with_swiglu_between(kernels: Kernels, format: Format, m: int) -> None:
    hidden, inner = 64, 96
    gate_up, down = stored(format, 2 * inner, hidden), stored(format, hidden, inner)
    norm = RmsNorm(torch.rand(hidden) + 0.5, 1e-6)
    x = torch.randn(m, hidden)
    got = x.clone()
    kernels.mlp(NativeMatrix(gate_up, None), NativeMatrix(down, None), got, got, norm)
    normed = functional.rms_norm(x, (hidden,), norm.weight, norm.eps)
    gate, up = functional.linear(normed, gate_up.dequantize()).chunk(2, dim=1)
    expected = functional.linear(functional.silu(gate) * up, down.dequantize())
    assert relative_error(got - x, expected) < 4e-4


@pytest.mark.parametrize("format", FORMATS)
def test_a_row_does_not_depend_on_the_rows_beside_it(kernels: Kernels, format: Format) -> None:
    matrix = NativeMatrix(stored(format, 96, 64), None)
    x = torch.randn(23, 64)
    together = torch.empty(23, 96)
    kernels.linear(matrix, x, together, norm=None, swiglu=False, add=False)
    for row in (0, 7, 22):
        alone = torch.empty(1, 96)
        kernels.linear(matrix, x[row : row + 1], alone, norm=None, swiglu=False, add=False)
        assert torch.equal(alone[0], together[row])


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("m", [1, 40])
def test_the_number_of_threads_changes_nothing(kernels: Kernels, m: int, threads: int) -> None:
    matrix = NativeMatrix(stored(Format.INT4, 208, 64), None)
    x, one, many = torch.randn(m, 64), torch.empty(m, 208), torch.empty(m, 208)
    before = torch.get_num_threads()
    try:
        for count, y in ((1, one), (threads, many)):
            torch.set_num_threads(count)
            kernels.linear(matrix, x, y, norm=None, swiglu=False, add=False)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(one, many)


def test_rows_of_zeros_give_zeros(kernels: Kernels) -> None:
    y = torch.full((1, 96), 7.0)
    matrix = NativeMatrix(stored(Format.INT4, 96, 64), None)
    kernels.linear(matrix, torch.zeros(1, 64), y, norm=None, swiglu=False, add=False)
    assert not y.any()


@pytest.mark.parametrize("size", native.HEAD_SIZES)
def test_decode_attention(kernels: Kernels, size: int) -> None:
    heads, kv_heads, n, prompt, tail = 6, 2, 3, 150, 4
    torch.manual_seed(1)
    width = (heads + 2 * kv_heads) * size
    qkv, out = torch.randn(n, width), torch.empty(n, heads * size)
    angles = torch.outer(torch.arange(200).float(), torch.rand(size // 2))
    cos, sin = angles.cos(), angles.sin()
    keys, values = torch.randn(kv_heads, 256, size), torch.randn(kv_heads, 256, size)
    tails = torch.randn(n, kv_heads, 8, size), torch.randn(n, kv_heads, 8, size)
    before = tails[0].clone()
    kernels.decode_attention(qkv, out, (cos, sin), (keys, values), prompt, tails, tail)
    at = prompt + tail
    split = qkv.view(n, -1, size)
    first, second = split[:, : heads + kv_heads].chunk(2, dim=-1)
    rotated = torch.cat(
        (first * cos[at] - second * sin[at], second * cos[at] + first * sin[at]), dim=-1
    )
    torch.testing.assert_close(tails[0][:, :, tail], rotated[:, heads:])
    torch.testing.assert_close(tails[1][:, :, tail], split[:, heads + kv_heads :])
    assert torch.equal(tails[0][:, :, :tail], before[:, :, :tail])
    assert torch.equal(tails[0][:, :, tail + 1 :], before[:, :, tail + 1 :])
    for row in range(n):
        k = torch.cat((keys[:, :prompt], tails[0][row, :, : tail + 1]), dim=1)
        v = torch.cat((values[:, :prompt], tails[1][row, :, : tail + 1]), dim=1)
        expected = functional.scaled_dot_product_attention(
            rotated[row, :heads].view(1, heads, 1, size), k[None], v[None], enable_gqa=True
        )
        assert relative_error(out[row], expected.reshape(-1)) < 1e-8


def test_top_of_plain_logits(kernels: Kernels) -> None:
    torch.manual_seed(2)
    logits = torch.randn(3, 50_000) * 4
    banned = logits.argmax(dim=1).unique()
    expected = logits.clone()
    expected[:, banned] = float("-inf")
    ids, values, total = kernels.top(logits, 64, banned, None)
    best = expected.topk(64)
    assert torch.equal(ids, best.indices)
    assert torch.equal(values, best.values)
    torch.testing.assert_close(total, expected.logsumexp(dim=1), atol=1e-4, rtol=1e-5)


def test_top_of_a_small_vocabulary_holds_all_of_it(kernels: Kernels) -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0, 3.0]])
    ids, values, _ = kernels.top(logits, 4, torch.tensor([2]), None)
    assert ids[0, :3].tolist() == [1, 3, 0]  # equal ones by number
    assert values[0].tolist() == [3.0, 3.0, 1.0, float("-inf")]


def test_a_sketch_that_misleads_is_found_out(kernels: Kernels) -> None:
    """The best token lies far below the sketch's threshold: its errors must lead to it."""
    vocab, hidden, k = 20_000, 64, 4
    torch.manual_seed(3)
    head = int8(torch.randn(vocab, hidden))
    projection = int8(torch.eye(hidden))
    norm = RmsNorm(torch.ones(hidden), 1e-6)
    empty = torch.empty(0, dtype=torch.int64)
    missed = 0
    for seed in range(20):
        random = torch.Generator().manual_seed(seed)
        x = torch.randn(2, hidden, generator=random)
        table = quantize(
            head.dequantize() + torch.randn(vocab, hidden, generator=random) * 0.3, Format.INT4
        )
        assert isinstance(table, Int4Weight)
        normed = functional.rms_norm(x, (hidden,), norm.weight, norm.eps)
        exact = functional.linear(normed, head.dequantize())
        winners = exact.argmax(dim=1)
        sketch = functional.linear(normed, table.dequantize()).topk(k).indices
        missed += int((sketch != winners[:, None]).all(dim=1).sum())
        sketched = Sketched(
            NativeMatrix(projection, None), NativeMatrix(table, None), NativeMatrix(head, None),
            x, norm,
        )  # fmt: skip
        ids, values, _ = kernels.top(torch.empty(2, vocab), k, empty, sketched)
        assert torch.equal(ids[:, 0], winners)
        torch.testing.assert_close(values, exact.gather(1, ids), atol=2e-2, rtol=1e-2)
    assert missed  # else the test would show nothing


def test_unknown_kernels_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.VARIABLE, "avx1024")
    with pytest.raises(ConfigError, match="avx1024"):
        native.load()


def test_a_missing_library_means_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> object:
        raise OSError("no such file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    native._load.cache_clear()  # pyright: ignore[reportPrivateUsage]
    try:
        monkeypatch.delenv(native.VARIABLE, raising=False)
        assert native.load() is None
        monkeypatch.setenv(native.VARIABLE, "avx2")
        with pytest.raises(ConfigError, match="not compiled"):
            native.load()
    finally:
        native._load.cache_clear()  # pyright: ignore[reportPrivateUsage]
