"""Patches are parsed as git prints them, and hunks are taken back exactly."""

import pytest

from perdure.core.patch import Hunk, hunks, split_lines, without

PATCH = b"""diff --git a/x b/x
index 1111111..2222222 100644
--- a/x
+++ b/x
@@ -1,3 +1,4 @@ def f():
+zero
 one
-two
+2
 three
@@ -10 +11,0 @@
-ten
@@ -20,2 +20 @@
 twenty
-end
\\ No newline at end of file
"""


def test_hunks_have_their_lines_without_signs() -> None:
    first, second, third = hunks(PATCH)
    assert first == Hunk(1, 1, [b"one\n", b"two\n", b"three\n"], [b"zero\n", b"one\n", b"2\n", b"three\n"])
    assert second == Hunk(10, 11, [b"ten\n"], [])
    assert third == Hunk(20, 20, [b"twenty\n", b"end"], [b"twenty\n"])


def test_a_missing_newline_can_be_on_either_or_both_sides() -> None:
    note = b"\\ No newline at end of file\n"
    assert hunks(b"@@ -1 +1 @@\n-a\n" + note + b"+b\n" + note) == [Hunk(1, 1, [b"a"], [b"b"])]
    assert hunks(b"@@ -1 +1,2 @@\n+b\n a\n" + note) == [Hunk(1, 1, [b"a"], [b"b\n", b"a"])]
    assert hunks(b"@@ -1 +1 @@\n-a\n" + note + b"+a\n") == [Hunk(1, 1, [b"a"], [b"a\n"])]


def test_only_a_newline_ends_a_line() -> None:
    assert split_lines(b"a\rb\r\n\x0cc\x1e\n\nd") == [b"a\rb\r\n", b"\x0cc\x1e\n", b"\n", b"d"]
    assert split_lines(b"") == []
    assert hunks(b"@@ -0,0 +1,2 @@\n+a\r\n+b\rc\n") == [Hunk(0, 1, [], [b"a\r\n", b"b\rc\n"])]


def test_lines_that_look_like_a_patch_are_lines() -> None:
    text = b"@@ -1,3 +0,0 @@\n--- a/x\n-@@ -1 +1 @@\n-diff --git a/x b/x\n"
    assert hunks(text) == [Hunk(1, 0, [b"-- a/x\n", b"@@ -1 +1 @@\n", b"diff --git a/x b/x\n"], [])]


def test_a_patch_without_lines_has_no_hunks() -> None:
    assert hunks(b"") == []
    assert hunks(b"diff --git a/x b/x\nold mode 100644\nnew mode 100755\n") == []
    assert hunks(b"diff --git a/x b/x\nBinary files a/x and b/x differ\n") == []


@pytest.mark.parametrize(
    "text",
    [
        PATCH + PATCH,
        b"diff --git a/x b/x\nold mode 1\nnew mode 2\n" + PATCH,
        b"@@ -1 +1 @@\n-a\n",
        b"@@ -1 +1 @@\n-a\nb\n",
        b"@@ -1 +1 @@\n a\n b\n",
        b"@@ -1,2 +1 @@\n-a\n+b\n+c\n-d\n",
        b"@@ what @@\n",
    ],
)
def test_what_is_not_the_patch_of_one_file_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        hunks(text)


def test_hunks_are_taken_back_from_the_new_text() -> None:
    parsed = hunks(b"@@ -1,0 +2,2 @@\n+x\n+y\n@@ -3 +5 @@\n-c\n+C\n@@ -5,0 +8 @@\n+end\n\\ No newline at end of file\n")
    new = b"a\nx\ny\nb\nC\nd\ne\nend"
    assert without(new, parsed, []) == new
    assert without(new, parsed, [0]) == b"a\nb\nC\nd\ne\nend"
    assert without(new, parsed, [1, 1]) == b"a\nx\ny\nb\nc\nd\ne\nend"
    assert without(new, parsed, [0, 1, 2]) == b"a\nb\nc\nd\ne\n"


def test_a_patch_to_another_text_or_a_missing_hunk_is_refused() -> None:
    parsed = hunks(b"@@ -1 +1 @@\n-a\n+b\n")
    with pytest.raises(ValueError):
        without(b"c\n", parsed, [0])
    for number in (1, -1):
        with pytest.raises(IndexError):
            without(b"b\n", parsed, [number])
