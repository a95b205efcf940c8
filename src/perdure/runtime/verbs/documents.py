"""Small documents, by kind and key: what a surface stores outside of sessions.

Above: the sign-ins and tickets of the HTTP surface. Below: the store, which implements it.
"""

from typing import Protocol


class Documents(Protocol):
    async def documents(self, kind: str) -> dict[str, bytes]:
        """All documents of a kind, by key."""
        ...

    async def document(self, kind: str, key: str) -> bytes | None: ...

    async def put_document(self, kind: str, key: str, value: bytes | None) -> None:
        """Store a document; None deletes it."""
        ...

    async def take_document(self, kind: str, key: str) -> bytes | None:
        """Delete a document and return it. Of several callers, only one gets it."""
        ...
