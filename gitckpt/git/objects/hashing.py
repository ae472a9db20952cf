"""Object ids, computed as git computes them."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Hash(Protocol):
        """A digest in the making."""

        def digest(self) -> bytes:
            """Returns the digest."""

        def hexdigest(self) -> str:
            """Returns the digest in hexadecimal digits."""


def object_id(kind: str, data: bytes, object_format: str) -> str:
    """Returns the oid of an object: the hash of `<kind> <size>NUL<content>` in the repository's format."""
    return object_hash(object_format, f"{kind} {len(data)}\0".encode() + data).hexdigest()


def object_hash(object_format: str, data: bytes) -> Hash:
    """Returns the hash that a repository of this format ("sha1" or "sha256") uses."""
    # The C modules behind hashlib: importing hashlib itself loads OpenSSL, 3 ms that the hook does not have.
    try:
        if object_format == "sha1":
            from _sha1 import sha1 as digest
        elif sys.version_info >= (3, 12):
            from _sha2 import sha256 as digest
        else:
            from _sha256 import sha256 as digest
    except ImportError:
        import hashlib

        digest = getattr(hashlib, object_format)
    made: Hash = digest(data)
    return made
