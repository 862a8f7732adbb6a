"""The precision policy decides by kind, error and budget, and says why."""

from __future__ import annotations

import pytest

from engine.errors import ConfigError
from engine.quantization.formats import Format
from engine.quantization.policy import Choice, Matrix, Measured, PrecisionPolicy

MATRICES = [
    Matrix("embed", 512, 64),
    Matrix("layers.0.qkv", 96, 64),
    Matrix("layers.0.attention_out", 64, 64),
    Matrix("layers.0.gate_up", 256, 64),
    Matrix("layers.0.down", 64, 128),
    Matrix("head", 512, 64),
]
ALL = frozenset(Format)


def test_auto_keeps_attention_and_head_above_the_mlp() -> None:
    plan = PrecisionPolicy().plan(MATRICES, ALL)
    assert {name: choice.format for name, choice in plan.items()} == {
        "embed": Format.INT8,
        "layers.0.qkv": Format.INT8_DYNAMIC,
        "layers.0.attention_out": Format.INT8_DYNAMIC,
        "layers.0.gate_up": Format.INT4_ZP,
        "layers.0.down": Format.INT4_ZP,
        "head": Format.INT8_DYNAMIC,
    }


def test_pinned_paths_stay_in_fp32() -> None:
    plan = PrecisionPolicy(pinned=("head", "layers.0.*")).plan(MATRICES, ALL)
    assert {n for n, c in plan.items() if c.format is Format.FP32} == {
        m.name for m in MATRICES if m.name != "embed"
    }


def test_a_pinned_pattern_that_matches_nothing_is_an_error() -> None:
    with pytest.raises(ConfigError, match="matches no matrix"):
        PrecisionPolicy(pinned=("haed",)).plan(MATRICES, ALL)


def test_what_shape_or_chip_forbid_gives_way_and_says_so() -> None:
    odd = Matrix("layers.0.down", 64, 40)
    [choice] = PrecisionPolicy("int4").plan([odd], ALL).values()
    assert choice.format is Format.BF16
    assert "40 columns" in choice.moved_from[0].reason
    without = ALL - {Format.BF16}
    [choice] = PrecisionPolicy("bf16").plan([odd], without).values()
    assert choice.format is Format.FP32
    assert "chip" in choice.moved_from[0].reason


def test_too_much_error_moves_a_matrix_one_format_up() -> None:
    policy, down = PrecisionPolicy(), MATRICES[4]
    choice = Choice(Format.INT4)
    fine = Measured(Format.INT4, 1, 0.01, 0.049, 0.99)
    assert policy.reconsider(down, choice, fine, ALL) == choice
    bad = Measured(Format.INT4, 1, 0.01, 0.051, 0.97)
    moved = policy.reconsider(down, choice, bad, ALL)
    assert moved.format is Format.INT4_ZP
    assert moved.moved_from[0].format is Format.INT4
    assert "output error 5.1%" in moved.moved_from[0].reason
    assert policy.reconsider(down, Choice(Format.FP32), bad, ALL).format is Format.FP32


def rungs(low: float, high: float) -> list[Measured]:
    return [
        Measured(Format.INT4, 100, low, low),
        Measured(Format.INT8_DYNAMIC, 200, high, high),
    ]


def test_a_budget_is_spent_where_it_lowers_the_error_most() -> None:
    measured = {"a": rungs(0.04, 0.001), "b": rungs(0.02, 0.001), "c": rungs(0.03, 0.001)}
    plan = PrecisionPolicy(budget_bytes=400).spend(measured)
    assert [plan[n].format for n in "abc"] == [Format.INT8_DYNAMIC, Format.INT4, Format.INT4]
    plan = PrecisionPolicy(budget_bytes=599).spend(measured)
    assert [plan[n].format for n in "abc"] == [
        Format.INT8_DYNAMIC, Format.INT4, Format.INT8_DYNAMIC,
    ]  # fmt: skip


def test_the_limit_holds_before_the_budget_is_spent() -> None:
    measured = {"a": rungs(0.06, 0.001), "b": rungs(0.04, 0.001)}
    plan = PrecisionPolicy(budget_bytes=300).spend(measured)
    assert plan["a"].format is Format.INT8_DYNAMIC
    with pytest.raises(ConfigError, match="at least 300 bytes"):
        PrecisionPolicy(budget_bytes=299).spend(measured)


@pytest.mark.parametrize(
    "bad",
    [
        {"precision": "int3"},
        {"budget_bytes": 0},
        {"precision": "int4", "budget_bytes": 100},
        {"pinned": (" ",)},
        {"limit": 0.0},
        {"limit": float("nan")},
    ],
)
def test_a_policy_that_cannot_be_is_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        PrecisionPolicy(**bad)  # pyright: ignore[reportArgumentType]


def test_another_policy_has_another_slug() -> None:
    policies = [
        PrecisionPolicy(),
        PrecisionPolicy("int8"),
        PrecisionPolicy(budget_bytes=1 << 20),
        PrecisionPolicy(pinned=("head",)),
        PrecisionPolicy(limit=0.1),
    ]
    assert len({policy.slug for policy in policies}) == len(policies)
