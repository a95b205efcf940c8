"""Search in any store, in addition to tests/conformance/stores.py."""

from perdure.stores.base import Phrase
from tests.conformance.stores import Owner, listed


class SearchSuite:
    async def test_sessions_are_found_by_a_directory_around_theirs(self, owner: Owner) -> None:
        for number, workdir in enumerate(("/srv/a_b", "/srv/a_b/inner", "/srv/axb", "/srv/a_bc", "/srv"), 1):
            await owner.create(str(number), listed=listed(workdir=workdir))
        assert await owner.found(below="/srv/a_b") == ["2", "1"]
        assert await owner.found(below="/srv") == await owner.found(below="/") == ["5", "4", "3", "2", "1"]
        assert await owner.found(below="/sr") == await owner.found(below="/srv/a_b/inner/x") == []

    async def test_search_finds_words_like_numbers_and_long_texts_in_any_script(self, owner: Owner) -> None:
        said = "commit 4e3f2a1 of 0x1E5abc, 12e34f56-7e8f and " + "x" * 3_000
        # For search, each syllable is three letters of three bytes, and all words differ.
        korean = " ".join(
            chr(0xAC01 + one) + chr(0xAC01 + other) for one in range(300) for other in range(0, 11_000, 50)
        )
        await owner.create("a", phrases=[Phrase(1, "user", said)])
        await owner.create("b", phrases=[Phrase(1, "user", korean)])
        for asked in ("4e3f2a1", "4e3f", "0x1e5abc", "12e34f56-7e8f", "commit"):
            assert await owner.found(q=asked) == ["a"], asked
        assert await owner.found(q=korean.split()[0]) == ["b"]
        assert await owner.found(q="z" * 5_000) == []

    async def test_working_directories_are_listed_by_latest_use_with_their_number_of_sessions(
        self, owner: Owner
    ) -> None:
        assert await owner.store.workdirs(10) == []
        used = [("a", "/srv/site", 1), ("b", "/srv/docs", 4), ("c", "/srv/site", 3), ("d", "/srv/old", 2)]
        for session_id, workdir, minute in used:
            at = f"2026-01-01T00:0{minute}:00Z"
            await owner.create(session_id, listed=listed(workdir=workdir, last_active_at=at))
        found = [(one.path, one.sessions, one.last_active_at[14:16]) for one in await owner.store.workdirs(10)]
        assert found == [("/srv/docs", 1, "04"), ("/srv/site", 2, "03"), ("/srv/old", 1, "02")]
        newest = [(one.path, one.sessions) for one in await owner.store.workdirs(2)]
        assert newest == [("/srv/docs", 1), ("/srv/site", 1)], "only the newest sessions are counted"
