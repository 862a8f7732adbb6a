"""The request from top to bottom, with scripted engine and checker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import pytest

from engine import Chunk, EngineStopped, FinishReason
from lsp_server.completion.outcome import Completion, Outcome, Trigger
from lsp_server.completion.pipeline import CompletionPipeline
from lsp_server.documents.snapshot import DocumentSnapshot
from lsp_server.settings import Settings
from lsp_server.verification.verifier import Verdict, VerdictKind
from tests.support.pipeline_stubs import ScriptedEngine, ScriptedVerifier, new_error, whole

TEXT = "x = \n"
OFFSET = 4
DOWN = Verdict(VerdictKind.UNAVAILABLE, reason="Pyright died")


def settings(**completion: Any) -> Settings:
    return Settings.model_validate({"completion": completion})


def checking(mode: str, **completion: Any) -> Settings:
    return Settings.model_validate({"completion": completion, "verification": {"mode": mode}})


async def run(
    engine: ScriptedEngine,
    verifier: ScriptedVerifier,
    *,
    trigger: Trigger = Trigger.INVOKED,
    given: Settings | None = None,
    text: str = TEXT,
    offset: int = OFFSET,
) -> Completion:
    pipeline = CompletionPipeline(engine, verifier)
    document = DocumentSnapshot("file:///a.py", text)
    return await pipeline.run(document, offset, trigger, given or settings(invoked_candidates=2))


def texts(completion: Completion) -> list[str]:
    return [suggestion.text for suggestion in completion.suggestions]


async def test_invoked_returns_all_clean_candidates_best_first() -> None:
    engine = ScriptedEngine(whole("1", "22", "333", logprobs=(-2.0, -0.5, -1.0)))
    completion = await run(engine, ScriptedVerifier(), given=settings(invoked_candidates=3))
    assert completion.outcome is Outcome.SHOWN
    assert texts(completion) == ["22", "333", "1"]
    assert all(suggestion.verified for suggestion in completion.suggestions)


async def test_automatic_returns_the_greedy_candidate_when_it_is_clean() -> None:
    engine = ScriptedEngine(whole("greedy", "sampled", logprobs=(-2.0, -0.1)))
    completion = await run(engine, ScriptedVerifier(), trigger=Trigger.AUTOMATIC)
    assert texts(completion) == ["greedy"]


async def test_automatic_falls_back_on_a_sampled_candidate() -> None:
    engine = ScriptedEngine(whole("greedy", "sampled"))
    verifier = ScriptedVerifier({"greedy": new_error()})
    completion = await run(engine, verifier, trigger=Trigger.AUTOMATIC)
    assert texts(completion) == ["sampled"]
    assert [rejection.text for rejection in completion.rejected] == ["greedy"]


async def test_automatic_abandons_the_rest_once_the_greedy_candidate_passed() -> None:
    never = asyncio.Event()
    engine = ScriptedEngine([Chunk(0, "1", -1.0, 1, FinishReason.STOP_TOKEN), never])
    completion = await run(engine, ScriptedVerifier(), trigger=Trigger.AUTOMATIC)
    assert texts(completion) == ["1"]
    assert engine.journal == ["generate", "closed"]
    assert completion.tokens.generated == 1


async def test_automatic_lets_the_greedy_check_go_first() -> None:
    sampled = Chunk(1, "sampled", -1.0, 1, FinishReason.STOP_TOKEN)
    greedy = Chunk(0, "greedy", -1.0, 1, FinishReason.STOP_TOKEN)
    verifier = ScriptedVerifier({"greedy": new_error()})
    await run(ScriptedEngine([sampled, greedy]), verifier, trigger=Trigger.AUTOMATIC)
    assert [text for _, _, text in verifier.checked] == ["greedy", "sampled"]


async def test_automatic_does_not_wait_for_a_greedy_candidate_that_shaping_dropped() -> None:
    empty = Chunk(0, "  ", -1.0, 1, FinishReason.STOP_TOKEN)
    sampled = Chunk(1, "sampled", -1.0, 1, FinishReason.STOP_TOKEN)
    completion = await run(
        ScriptedEngine([sampled, empty]), ScriptedVerifier(), trigger=Trigger.AUTOMATIC
    )
    assert texts(completion) == ["sampled"]


async def test_stages_overlap_in_their_order() -> None:
    journal: list[str] = []
    gate = asyncio.Event()
    engine = ScriptedEngine(
        [Chunk(0, "1", -1.0, 1, FinishReason.STOP_TOKEN), gate, *whole("", "2")[1:]], journal
    )
    verifier = ScriptedVerifier(journal=journal)
    running = asyncio.create_task(run(engine, verifier))
    await verifier.asked.wait()
    assert "ended" not in journal, "the first check starts while the second decodes"
    assert sorted(journal[:2]) == ["generate", "prepare"], "the baseline is begun at once"
    gate.set()
    assert texts(await running) == ["1", "2"]
    assert set(journal[3:]) == {"check 2", "ended"}


async def test_what_the_engine_is_asked() -> None:
    engine = ScriptedEngine(whole("1", "2", "3"))
    given = settings(invoked_candidates=3, max_tokens=9, temperature=0.5, top_p=0.8)
    await run(engine, ScriptedVerifier(), given=given)
    [request] = engine.requests
    assert (request.prefix, request.suffix) == ("x = ", "\n")
    assert (request.max_tokens, request.max_lines) == (9, 1)
    greedy, *sampled = request.sampling
    assert greedy.temperature == 0
    assert all((each.temperature, each.top_p) == (0.5, 0.8) for each in sampled)
    assert len({each.seed for each in request.sampling}) == 3


async def test_rejected_candidates_are_reported_with_rule_and_message() -> None:
    verifier = ScriptedVerifier({"bad": new_error("reportCallIssue", "one too many")})
    completion = await run(ScriptedEngine(whole("bad", "good")), verifier)
    assert texts(completion) == ["good"]
    [rejection] = completion.rejected
    assert rejection.text == "bad"
    [error] = rejection.new_errors
    assert (error.rule, error.message) == ("reportCallIssue", "one too many")


async def test_nothing_but_rejections() -> None:
    verifier = ScriptedVerifier({"a": new_error(), "b": new_error()})
    completion = await run(ScriptedEngine(whole("a", "b")), verifier)
    assert completion.outcome is Outcome.REJECTED
    assert completion.suggestions == ()
    assert len(completion.rejected) == 2


@pytest.mark.parametrize("trigger", list(Trigger))
async def test_required_shows_nothing_while_the_checker_is_down(trigger: Trigger) -> None:
    verifier = ScriptedVerifier({"a": DOWN, "b": DOWN})
    completion = await run(ScriptedEngine(whole("a", "b")), verifier, trigger=trigger)
    assert completion.outcome is Outcome.UNVERIFIED
    assert completion.suggestions == ()
    assert completion.reason == "Pyright died"


@pytest.mark.parametrize("trigger", list(Trigger))
async def test_preferred_shows_unverified_while_the_checker_is_down(trigger: Trigger) -> None:
    verifier = ScriptedVerifier({"a": DOWN, "b": DOWN})
    completion = await run(
        ScriptedEngine(whole("a", "b")), verifier, trigger=trigger, given=checking("preferred")
    )
    assert completion.outcome is Outcome.SHOWN
    assert not any(suggestion.verified for suggestion in completion.suggestions)


async def test_off_asks_no_checker() -> None:
    verifier = ScriptedVerifier()
    completion = await run(ScriptedEngine(whole("a", "b")), verifier, given=checking("off"))
    assert texts(completion) == ["a", "b"]
    assert not any(suggestion.verified for suggestion in completion.suggestions)
    assert verifier.journal == []


async def test_a_language_without_a_checker_is_shown_unverified() -> None:
    verdict = Verdict(VerdictKind.NOT_APPLICABLE)
    verifier = ScriptedVerifier({"a": verdict, "b": verdict})
    completion = await run(ScriptedEngine(whole("a", "b")), verifier)
    assert [suggestion.verified for suggestion in completion.suggestions] == [False, False]


async def test_verified_before_unverified_and_demoted_last() -> None:
    shaky = Verdict(VerdictKind.CLEAN, demoted=new_error().new_errors)
    verifier = ScriptedVerifier({"down": DOWN, "shaky": shaky})
    completion = await run(
        ScriptedEngine(whole("down", "shaky", "sound", logprobs=(-0.1, -0.2, -9.0))),
        verifier,
        given=checking("preferred", invoked_candidates=3),
    )
    assert texts(completion) == ["sound", "shaky", "down"]


async def test_cancelling_closes_the_engine_and_drops_the_checks() -> None:
    journal: list[str] = []
    never = asyncio.Event()
    engine = ScriptedEngine([Chunk(0, "a", -1.0, 1, FinishReason.STOP_TOKEN), never], journal)
    verifier = ScriptedVerifier({"a": never}, journal, baseline_gate=never)
    running = asyncio.create_task(run(engine, verifier))
    await verifier.asked.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert {"closed", "dropped a", "prepare dropped"} <= set(journal)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_the_time_budget_ends_generation() -> None:
    engine = ScriptedEngine([asyncio.Event()])
    completion = await run(engine, ScriptedVerifier(), given=settings(time_budget_ms=50))
    assert completion.outcome is Outcome.OUT_OF_TIME
    assert engine.journal == ["generate", "closed"]


async def test_what_passed_before_the_time_was_up_is_shown() -> None:
    engine = ScriptedEngine([Chunk(0, "a", -1.0, 1, FinishReason.STOP_TOKEN), asyncio.Event()])
    completion = await run(engine, ScriptedVerifier(), given=settings(time_budget_ms=50))
    assert completion.outcome is Outcome.SHOWN
    assert texts(completion) == ["a"]


@pytest.mark.parametrize("mode", ["required", "preferred"])
async def test_a_check_that_takes_too_long(mode: str) -> None:
    verifier = ScriptedVerifier({"a": asyncio.Event()})
    completion = await run(
        ScriptedEngine(whole("a")), verifier, given=checking(mode, time_budget_ms=50)
    )
    assert "dropped a" in verifier.journal
    if mode == "required":
        assert completion.outcome is Outcome.OUT_OF_TIME
        assert completion.suggestions == ()
    else:
        [suggestion] = completion.suggestions
        assert (suggestion.text, suggestion.verified) == ("a", False)


async def test_a_slow_baseline_is_not_waited_for_when_nothing_needs_it() -> None:
    verifier = ScriptedVerifier(baseline_gate=asyncio.Event())
    prepared = asyncio.Event()
    asyncio.get_running_loop().call_soon(prepared.set)  # after `prepare` has begun
    completion = await run(ScriptedEngine([prepared, *whole("  ", "\n")]), verifier)
    assert completion.outcome is Outcome.NOTHING_GENERATED
    assert verifier.journal == ["prepare", "prepare dropped"]


async def test_an_engine_error_is_an_outcome() -> None:
    engine = ScriptedEngine([EngineStopped("the engine has been stopped")])
    completion = await run(engine, ScriptedVerifier())
    assert completion.outcome is Outcome.FAILED
    assert completion.reason == "the engine has been stopped"


async def test_a_bug_is_an_outcome_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    verifier = ScriptedVerifier(raises=ZeroDivisionError("oh"))
    with caplog.at_level(logging.ERROR):
        completion = await run(ScriptedEngine(whole("a", "b")), verifier)
    assert completion.outcome is Outcome.FAILED
    assert completion.reason == "ZeroDivisionError: oh"
    assert caplog.records


async def test_a_timeout_error_that_is_not_ours_is_a_failure() -> None:
    completion = await run(ScriptedEngine([TimeoutError("inner")]), ScriptedVerifier())
    assert completion.outcome is Outcome.FAILED


async def test_duplicates_are_checked_and_shown_once() -> None:
    verifier = ScriptedVerifier()
    engine = ScriptedEngine(whole("a", "a  ", "a\nb"))
    completion = await run(engine, verifier, given=settings(invoked_candidates=3))
    assert texts(completion) == ["a"]
    assert len(verifier.checked) == 1


async def test_a_crlf_document_gets_its_own_line_ends() -> None:
    text = "def f() -> int:\r\n    \r\n"
    engine = ScriptedEngine(whole("a = 1\n    return a"))
    verifier = ScriptedVerifier()
    completion = await run(engine, verifier, text=text, offset=text.index("    ") + 4)
    assert texts(completion) == ["a = 1\r\n    return a"]
    assert "\r" not in engine.requests[0].prefix + engine.requests[0].suffix
    assert verifier.checked[0][2] == "a = 1\n    return a", "the checker sees LF only"


async def test_emoji_before_the_cursor_count_as_one_character() -> None:
    text = "s = '🦊🦊' + \n"
    engine = ScriptedEngine(whole("'🐾'"))
    verifier = ScriptedVerifier()
    completion = await run(engine, verifier, text=text, offset=11)
    assert engine.requests[0].prefix == "s = '🦊🦊' + "
    assert verifier.checked == [(11, 11, "'🐾'")]
    assert texts(completion) == ["'🐾'"]


async def test_a_replaced_closer_is_checked_as_such() -> None:
    text = "print()\n"
    verifier = ScriptedVerifier()
    completion = await run(ScriptedEngine(whole("1) or 2")), verifier, text=text, offset=6)
    [suggestion] = completion.suggestions
    assert (suggestion.text, suggestion.replace_after) == ("1) or 2", 1)
    assert verifier.checked == [(6, 7, "1) or 2")]


async def test_a_settled_block_ends_generation_early() -> None:
    text = "def f() -> int:\n    \n"
    pieces: list[Chunk | asyncio.Event | Exception] = [
        Chunk(0, "return 1\n", -1.0, 3),
        Chunk(0, "print", -1.0, 1),
        asyncio.Event(),
    ]
    engine = ScriptedEngine(pieces)
    completion = await run(
        engine, ScriptedVerifier(), text=text, offset=20, given=settings(invoked_candidates=1)
    )
    assert texts(completion) == ["return 1"]
    assert engine.journal == ["generate", "closed"]
    assert completion.tokens.generated == 4


async def test_excluded_places_ask_nobody() -> None:
    engine, verifier = ScriptedEngine([]), ScriptedVerifier()
    completion = await run(engine, verifier, text="x = \0\n")
    assert completion.outcome is Outcome.EXCLUDED
    assert "NUL" in completion.reason
    assert engine.journal + verifier.journal == []


async def test_disabled_asks_nobody() -> None:
    engine, verifier = ScriptedEngine([]), ScriptedVerifier()
    completion = await run(engine, verifier, given=Settings(enabled=False))
    assert completion.outcome is Outcome.DISABLED
    assert engine.journal + verifier.journal == []


async def test_the_engines_own_figures_are_passed_on() -> None:
    completion = await run(ScriptedEngine(whole("a", "b")), ScriptedVerifier())
    tokens, timing = completion.tokens, completion.timing
    assert (tokens.prompt, tokens.reused, tokens.generated) == (40, 30, 12)
    assert (timing.prefill_ms, timing.decode_ms) == (5.0, 7.0)


async def test_requests_side_by_side_keep_their_verdicts_apart() -> None:
    verdicts: Mapping[str, Verdict | asyncio.Event] = {"bad": new_error()}
    pipeline = CompletionPipeline(ScriptedEngine(whole("bad", "good")), ScriptedVerifier(verdicts))
    document = DocumentSnapshot("file:///a.py", TEXT)
    both = await asyncio.gather(
        *(pipeline.run(document, OFFSET, Trigger.INVOKED, settings()) for _ in range(2))
    )
    assert [texts(each) for each in both] == [["good"], ["good"]]
