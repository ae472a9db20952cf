"""What the tests of attacks share with others."""

from tests.cli.conftest import ckpt
from tests.store.conftest import make_store, plain

__all__ = ["ckpt", "make_store", "plain"]
