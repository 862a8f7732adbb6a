"""Verdicts of the real Pyright; one child for the whole file, each test its own documents."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from lsp_server.documents.snapshot import DocumentSnapshot
from lsp_server.errors import PositionOutside
from lsp_server.verification.pyright_verifier import PyrightVerifier
from lsp_server.verification.verifier import VerdictKind
from tests.lsp_server.verification.workbench import Bench, Hole, rules, running

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Bench]:
    root = tmp_path_factory.mktemp("project")
    (root / "helper.py").write_text("def double(x: int) -> int:\n    return 2 * x\n")
    (root / "other.py").write_text("saved = 1\n")
    (root / "own.py").write_text("x = 1\n")
    async with running(root) as bench:
        yield bench


async def test_a_right_candidate_is_clean(bench: Bench) -> None:
    verdict = await bench.verdict("a.py", "import helper\nhelper.<|>\n", "double(2)")
    assert rules(verdict) == []


async def test_an_attribute_that_does_not_exist_is_named(bench: Bench) -> None:
    verdict = await bench.verdict("a.py", "import helper\nhelper.<|>\n", "triple(2)")
    assert rules(verdict) == ["reportAttributeAccessIssue"]
    (error,) = verdict.new_errors
    assert error.message == '"triple" is not a known attribute of module "helper"'
    assert error.line == 2


@pytest.mark.parametrize(
    ("candidate", "rule"),
    [
        ("helper.double('2')", "reportArgumentType"),
        ("helper.double()", "reportCallIssue"),
        ("undefined_here", "reportUndefinedVariable"),
        ("1 + '2'", "reportOperatorIssue"),
        ("import nothing_of_that_name", "reportMissingImports"),
        ("helper.double(", "syntax"),
        ("return 1", "syntax"),
        ("1 +", "syntax"),
    ],
)
async def test_each_kind_of_error_rejects(bench: Bench, candidate: str, rule: str) -> None:
    verdict = await bench.verdict("b.py", "import helper\n<|>\n", candidate)
    assert rule in rules(verdict)


async def test_an_error_further_down_that_the_candidate_causes_rejects(bench: Bench) -> None:
    marked = "def f() -> None:\n    x = 1\n    <|>\n    y = x + 1\n"
    verdict = await bench.verdict("c.py", marked, 'x = "one"')
    assert rules(verdict) == ["reportOperatorIssue"]
    assert verdict.new_errors[0].line == 4


async def test_errors_the_document_has_do_not_condemn(bench: Bench) -> None:
    marked = "import helper\nhelper.lost\nx = helper.<|>\nhelper.lost\nlost()\n"
    assert rules(await bench.verdict("d.py", marked, "double(\n    2\n)")) == []
    verdict = await bench.verdict("d.py", marked, "lost\nhelper.lost")
    assert [error.line for error in verdict.new_errors] == [3, 4]


async def test_a_document_broken_elsewhere_is_still_judged(bench: Bench) -> None:
    marked = "def f:\n    pass\n\nx: int = <|>\n\nif x\n"
    assert rules(await bench.verdict("e.py", marked, "1")) == []
    assert rules(await bench.verdict("e.py", marked, "'1'")) == ["reportAssignmentType"]


async def test_a_forgotten_bracket_is_not_excused_by_taking_the_old_one_out(bench: Bench) -> None:
    hole = bench.hole("f.py", "x = len(<|>)\n")
    replacing = hole.offset + 1
    right = await bench.verifier.check(hole.document, hole.offset, replacing, "'ab')")
    wrong = await bench.verifier.check(hole.document, hole.offset, replacing, "'ab'")
    assert rules(right) == []
    assert set(rules(wrong)) == {"syntax"}


async def test_an_unfinished_function_is_demoted_not_rejected(bench: Bench) -> None:
    verdict = await bench.verdict("g.py", "def f(x: int) -> int:\n    <|>\n", "y = x + 1")
    assert rules(verdict) == []
    assert [error.rule for error in verdict.demoted] == ["reportReturnType"]
    finished = await bench.verdict("g.py", "def f(x: int) -> int:\n    <|>\n", "return x + 1")
    assert rules(finished) == []
    assert finished.demoted == ()


async def test_candidates_asked_at_once_get_their_own_verdicts(bench: Bench) -> None:
    holes = [bench.hole(f"at_once_{i % 2}.py", "def f() -> None:\n    <|>\n") for i in range(8)]
    names = [f"planted_{i}" if i % 3 else "pass" for i in range(8)]
    verdicts = await asyncio.gather(
        *(hole.check(bench.verifier, name) for hole, name in zip(holes, names, strict=True))
    )
    for name, verdict in zip(names, verdicts, strict=True):
        found = [error.message for error in verdict.new_errors]
        assert found == ([] if name == "pass" else [f'"{name}" is not defined'])


async def test_candidates_one_after_another_get_their_own_verdicts(bench: Bench) -> None:
    for name in ("one", "two", "pass", "one"):
        verdict = await bench.verdict("row.py", "<|>\n", name)
        found = [error.message for error in verdict.new_errors]
        assert found == ([] if name == "pass" else [f'"{name}" is not defined'])


@pytest.mark.parametrize("eol", ["\n", "\r\n", "\r"])
async def test_line_ends_and_wide_characters_keep_errors_in_their_place(
    bench: Bench, eol: str
) -> None:
    marked = "s = '🎉🎉'; lost; t = '🎉' + (<|>s); lost\nlost\n".replace("\n", eol)
    assert rules(await bench.verdict("h.py", marked, "s\n+ ")) == []
    verdict = await bench.verdict("h.py", marked, "\n    lost + ")
    assert [(error.rule, error.line) for error in verdict.new_errors] == [
        ("reportUndefinedVariable", 2)
    ]


async def test_a_document_without_a_file_sees_the_workspace(bench: Bench) -> None:
    hole = Hole.at_cursor(None, "import helper\nhelper.<|>\n")
    assert rules(await hole.check(bench.verifier, "double(1)")) == []
    assert rules(await hole.check(bench.verifier, "lost")) == ["reportAttributeAccessIssue"]


async def test_a_document_outside_the_root_is_judged(bench: Bench, tmp_path: Path) -> None:
    hole = Hole.at_cursor(tmp_path / "outside.py", "x: int = <|>\n")
    assert rules(await hole.check(bench.verifier, "1")) == []
    assert rules(await hole.check(bench.verifier, "'1'")) == ["reportAssignmentType"]


async def test_a_script_without_an_ending_is_checked(bench: Bench) -> None:
    assert rules(await bench.verdict("script", "#!python\n<|>\n", "lost")) == [
        "reportUndefinedVariable"
    ]


async def test_text_with_a_lone_surrogate_is_checked(bench: Bench) -> None:
    assert rules(await bench.verdict("i.py", "s = '\ud83d'; <|>\n", "lost")) == [
        "reportUndefinedVariable"
    ]


async def test_unsaved_text_of_another_document_counts(bench: Bench) -> None:
    path = bench.root / "other.py"
    hole = bench.hole("j.py", "import other\nother.<|>\n")
    assert rules(await hole.check(bench.verifier, "typed")) == ["reportAttributeAccessIssue"]
    bench.verifier.update(DocumentSnapshot(path.as_uri(), "typed = 1\n", path=path))
    assert rules(await hole.check(bench.verifier, "typed")) == []
    assert rules(await hole.check(bench.verifier, "saved")) == ["reportAttributeAccessIssue"]
    bench.verifier.forget(path.as_uri())
    assert rules(await hole.check(bench.verifier, "saved")) == []


async def test_a_judged_candidate_does_not_stay_in_its_document(bench: Bench) -> None:
    own = bench.root / "own.py"
    document = DocumentSnapshot(own.as_uri(), "x = 1\n", path=own)
    bench.verifier.update(document)
    verdict = await bench.verifier.check(document, len(document.text), len(document.text), "y = 2")
    assert rules(verdict) == []
    hole = bench.hole("k.py", "import own\nown.<|>\n")
    assert rules(await hole.check(bench.verifier, "y")) == ["reportAttributeAccessIssue"]


async def test_files_that_change_on_disk_are_seen_once_told(bench: Bench) -> None:
    path = bench.root / "generated.py"
    hole = bench.hole("l.py", "<|>\n")
    assert rules(await hole.check(bench.verifier, "import generated")) == ["reportMissingImports"]
    path.write_text("x = 1\n")
    bench.verifier.files_changed({path.as_uri(): True})
    assert rules(await hole.check(bench.verifier, "from generated import x")) == []
    path.write_text("y = 1\n")
    bench.verifier.files_changed({path.as_uri(): False})
    assert rules(await hole.check(bench.verifier, "from generated import y")) == []
    path.unlink()
    bench.verifier.files_changed({path.as_uri(): True})
    assert rules(await hole.check(bench.verifier, "import generated")) == ["reportMissingImports"]


async def test_other_languages_are_not_judged(bench: Bench) -> None:
    hole = Hole.at_cursor(bench.root / "a.ts", "let x = <|>\n", language_id="typescript")
    verdict = await hole.check(bench.verifier, "undefined_name")
    assert verdict.kind is VerdictKind.NOT_APPLICABLE


async def test_a_notebook_cell_is_not_judged_without_its_siblings(bench: Bench) -> None:
    document = DocumentSnapshot("vscode-notebook-cell:/a.ipynb#W1", "x\n")
    verdict = await bench.verifier.check(document, 0, 0, "y = ")
    assert verdict.kind is VerdictKind.UNAVAILABLE
    assert "notebook" in verdict.reason


async def test_a_range_outside_the_document_is_refused(bench: Bench) -> None:
    with pytest.raises(PositionOutside):
        await bench.verifier.check(DocumentSnapshot("untitled:1", "x"), 0, 9, "y")


async def test_the_projects_own_settings_apply(tmp_path: Path) -> None:
    (tmp_path / "pyrightconfig.json").write_text(
        '{\n  // ours\n  "typeCheckingMode": "strict", "reportPossiblyUnboundVariable": "error",\n}'
    )
    marked = "def f(c: bool) -> None:\n    if c:\n        x = 1\n    <|>\n"
    async with running(tmp_path) as bench:
        assert rules(await bench.verdict("a.py", marked, "print(x)")) == [
            "reportPossiblyUnboundVariable"
        ]


async def test_a_lone_file_needs_no_workspace(tmp_path: Path) -> None:
    (tmp_path / "sibling.py").write_text("x = 1\n")
    async with running(None) as bench:
        hole = Hole.at_cursor(tmp_path / "lone.py", "import sibling\nsibling.<|>\n")
        assert rules(await hole.check(bench.verifier, "x")) == []
        untitled = Hole.at_cursor(None, "x: int = <|>\n")
        assert rules(await untitled.check(bench.verifier, "'1'")) == ["reportAssignmentType"]


async def test_missing_imports_only_demote_where_no_interpreter_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    verifier = PyrightVerifier(tmp_path, timeout_ms=60_000)
    try:
        hole = Hole.at_cursor(tmp_path / "a.py", "<|>\n")
        verdict = await hole.check(verifier, "import nothing_of_that_name")
        assert rules(verdict) == []
        assert [error.rule for error in verdict.demoted] == ["reportMissingImports"]
        assert verifier.environment is not None
        assert not verifier.environment.confirmed
    finally:
        await verifier.aclose()


async def test_a_wrong_interpreter_setting_is_reported(tmp_path: Path) -> None:
    said: list[str] = []
    verifier = PyrightVerifier(
        tmp_path, interpreter="/nowhere/python", timeout_ms=60_000, on_status=said.append
    )
    try:
        await verifier.start()
        assert len(said) == 1
        assert "/nowhere/python" in said[0]
        hole = Hole.at_cursor(tmp_path / "a.py", "<|>\n")
        assert rules(await hole.check(verifier, "lost")) == ["reportUndefinedVariable"]
    finally:
        await verifier.aclose()


async def test_the_known_interpreters_packages_are_seen(bench: Bench) -> None:
    assert sys.executable
    assert rules(await bench.verdict("m.py", "<|>\n", "import pytest\npytest.fail('x')")) == []
