"""Search in any store, in addition to tests/conformance/stores.py."""

from perdure.stores.base import Phrase
from tests.conformance.stores import Owner


class SearchSuite:
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
