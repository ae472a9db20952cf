"""Make the store's fixtures available to the suites that kill it."""

from tests.store.conftest import adapter, denied, inner, lib, make_store, plain, store

__all__ = ["adapter", "denied", "inner", "lib", "make_store", "plain", "store"]
