"""Settings from every source, in every spelling, with mistakes in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.settings import Settings
from lsp_server.settings_loading import Layer, combine, read_layer, read_pyproject


def problems(raw: object) -> list[str]:
    return [str(problem) for problem in read_layer(raw, "editor").problems]


@pytest.mark.parametrize(
    "raw",
    [
        {"completion": {"maxTokens": 8}},
        {"completion": {"max-tokens": 8}},
        {"completion": {"max_tokens": 8}},
        {"completion": {"max_tokens": 8.0}},
        {"completion.maxTokens": 8},
        {"ghostwright.completion.maxTokens": 8},
        {"ghostwright": {"completion": {"maxTokens": 8}}},
    ],
)
def test_every_spelling_sets_the_same(raw: object) -> None:
    layer = read_layer(raw, "editor")
    assert not layer.problems
    assert combine(layer).completion.max_tokens == 8


def test_null_leaves_the_earlier_layer_alone() -> None:
    project = read_layer({"completion": {"maxTokens": 8}}, "project")
    editor = read_layer({"completion": {"maxTokens": None}, "model": None}, "editor")
    assert not editor.problems
    assert combine(project, editor).completion.max_tokens == 8
    assert combine(editor) == Settings()


def test_later_layers_win_setting_by_setting() -> None:
    first = read_layer({"completion": {"maxTokens": 8, "debounceMs": 5}}, "a")
    second = read_layer({"completion": {"maxTokens": 9}}, "b")
    merged = combine(first, second)
    assert (merged.completion.max_tokens, merged.completion.debounce_ms) == (9, 5)
    assert first.values == {"completion": {"max_tokens": 8, "debounce_ms": 5}}


def test_an_unknown_setting_is_named_with_a_guess() -> None:
    [problem] = problems({"completion": {"maxTokns": 8}})
    assert "ghostwright.completion.maxTokns" in problem
    assert "did you mean maxTokens?" in problem


def test_an_unknown_setting_without_a_guess_lists_what_there_is() -> None:
    [problem] = problems({"zzz": 8})
    assert "known here: enabled, completion, verification, model" in problem


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"completion": {"maxTokens": 0}}, "maxTokens cannot be 0 (use a whole number from 1 up"),
        ({"completion": {"maxTokens": True}}, "cannot be True"),
        ({"completion": {"maxTokens": "8"}}, "cannot be '8'"),
        ({"completion": {"topP": 0}}, "use a number above 0 up to 1"),
        ({"verification": {"mode": "on"}}, 'use "required" or "preferred" or "off"'),
        ({"enabled": "yes"}, "use true or false"),
        ({"model": {"name": ""}}, "a text that is not empty"),
        ({"model": "qwen"}, "it groups other settings"),
        ([1], "[1] is not an object"),
        ("x" * 500, "..."),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(raw: object, said: str) -> None:
    [problem] = problems(raw)
    assert said in problem
    assert len(problem) < 250


def test_a_strange_key_stays_on_one_line() -> None:
    [problem] = problems({"a\nb": 1})
    assert "\n" not in problem


def test_a_mistake_costs_only_its_own_setting() -> None:
    layer = read_layer({"completion": {"maxTokens": 0, "debounceMs": 7}, "nope": 1}, "editor")
    assert len(layer.problems) == 2
    assert combine(layer).completion.debounce_ms == 7


def test_pyproject_is_read(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.ghostwright.completion]\nmax-tokens = 8\n")
    assert combine(read_pyproject(tmp_path)).completion.max_tokens == 8


@pytest.mark.parametrize("content", [b"[tool", b"\xff\xfe", b"tool = 3", b"[tool]\nghostwright=3"])
def test_a_damaged_pyproject_is_survived(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "pyproject.toml").write_bytes(content)
    layer = read_pyproject(tmp_path)
    assert combine(layer) == Settings()
    assert len(layer.problems) == (content != b"tool = 3")


def test_no_pyproject_is_no_problem(tmp_path: Path) -> None:
    for root in (None, tmp_path, tmp_path / "missing"):
        assert read_pyproject(root) == Layer()


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["completion", "max_tokens", "top-p", "enabled", "model.name", ""])
            | st.text(max_size=9),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(json_values)
def test_no_input_breaks_loading(raw: object) -> None:
    layer = read_layer(raw, "editor")
    assert isinstance(combine(layer), Settings)
    for problem in layer.problems:
        assert problem.what.isprintable()
