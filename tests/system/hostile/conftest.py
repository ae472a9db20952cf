"""Make fixtures of other suites available to the tests of attacks."""

from tests.cli.conftest import ckpt
from tests.store.conftest import make_store, plain

__all__ = ["ckpt", "make_store", "plain"]
