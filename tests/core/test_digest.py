"""A conversation that is too long: bounded by tokens, the latest as it was, and nothing left out in silence."""

from hypothesis import given
from hypothesis import strategies as st

from perdure.core.digest import MIN_TOKENS, budget, in_words, note_of, shorten, tokens_of
from perdure.core.transcript_text import Entry

turns = st.lists(st.tuples(st.text(max_size=400), st.text(max_size=1500)), max_size=30)


def entries_of(said: list[tuple[str, str]]) -> list[Entry]:
    found = []
    for number, (message, answer) in enumerate(said, 1):
        found.append(Entry("user", number, "alpha", message))
        found.append(Entry("assistant", number, "alpha", answer))
    return found


@given(turns, st.integers(MIN_TOKENS, 20_000))
def test_it_is_told_as_it_was_if_and_only_if_it_fits(said: list[tuple[str, str]], limit: int) -> None:
    entries = entries_of(said)
    short = shorten(entries, limit)
    whole = shorten(entries, 10**9)
    assert whole.entries == entries and whole.digested == whole.left_out == ()
    assert bool(short.digested or short.left_out) is (whole.tokens > limit)
    assert short.entries == entries or short.digested or short.left_out


@given(turns, st.integers(MIN_TOKENS, 20_000))
def test_every_turn_is_told_told_shortly_or_named_as_left_out_in_this_order(
    said: list[tuple[str, str]], limit: int
) -> None:
    entries = entries_of(said)
    short = shorten(entries, limit)
    told = list(dict.fromkeys(entry.turn for entry in short.entries))
    verbatim = [number for number in told if number not in short.digested]
    assert [*short.left_out, *told] == list(range(1, len(said) + 1))
    assert set(short.digested) <= set(told)
    assert [entry for entry in short.entries if entry.turn in verbatim] == [e for e in entries if e.turn in verbatim]
    assert shorten(entries, limit) == short
    note = note_of(short)
    assert bool(note) is bool(short.digested or short.left_out)
    if short.left_out:
        assert in_words(short.left_out) in note


@given(turns, st.integers(MIN_TOKENS, 20_000))
def test_it_stays_within_its_bound_but_for_a_last_turn_that_is_too_long_alone(
    said: list[tuple[str, str]], limit: int
) -> None:
    short = shorten(entries_of(said), limit)
    counted = sum(tokens_of(entry.text) for entry in short.entries)
    assert counted <= limit or len({entry.turn for entry in short.entries}) == 1


def test_a_turn_that_is_too_long_costs_the_others_nothing() -> None:
    small = [(f"q{number}", "word " * 200) for number in range(10)]
    newest = shorten(entries_of([*small, ("q", "long " * 400_000)]), 100_000)
    assert newest.digested == (11,) and not newest.left_out
    assert newest.tokens > 60_000, "the newest is told as far as there is room"
    middle = shorten(entries_of([*small, ("q", "long " * 400_000), *small]), 100_000)
    assert middle.digested == (11,) and not middle.left_out


def test_a_digest_keeps_the_beginning_the_end_and_each_tool_as_a_line() -> None:
    answer = (
        "I begin. " + "x" * 5000 + "\n" + "\n".join(f"[tool Bash: step {n} (completed)]" for n in range(12)) + "\nDone."
    )
    entries = [
        Entry("user", 1, "alpha", "Do it. " + "y" * 5000, "attached: plan.md"),
        Entry("assistant", 1, "alpha", answer),
        *entries_of([("", ""), ("new", "answer")])[2:],
    ]
    short = shorten(entries, 1000)
    assert short.digested == (1,) and not short.left_out
    message, said = short.entries[:2]
    assert message.text.startswith("Do it. ") and "[...]" in message.text
    assert message.note == "attached: plan.md; shortened, 5007 characters"
    lines = said.text.splitlines()
    assert lines[0].startswith("I begin.") and "Done." in said.text
    assert sum(line.startswith("[tool Bash: step ") for line in lines) == 8
    assert "[and 4 more tools]" in lines


def test_the_budget_is_as_set_or_half_of_what_the_model_holds_and_a_quarter_each_time_it_was_too_much() -> None:
    assert budget(None, None, 0) == 100_000
    assert budget(None, 32_000, 0) == 16_000
    assert budget(5_000, 32_000, 0) == 5_000
    assert [budget(None, 200_000, times) for times in range(4)] == [100_000, 25_000, 6_250, 1_562]
    assert budget(1, None, 9) == MIN_TOKENS


def test_numbers_are_said_as_people_say_them() -> None:
    assert in_words([3]) == "turn 3 is"
    assert in_words([1, 2, 3]) == "turns 1 to 3 are"
    assert in_words([9, 1, 2, 5]) == "turns 1, 2, 5 and 9 are"
    assert in_words([1, 2]) == "turns 1 and 2 are"


def test_other_scripts_count_for_more_than_english() -> None:
    assert tokens_of("word " * 40) == 51
    assert tokens_of("字" * 40) == 41
