"""Fixtures of the store's tests, for the suites that kill and starve it."""

from tests.store.conftest import adapter, denied, inner, lib, make_store, plain, store

__all__ = ["adapter", "denied", "inner", "lib", "make_store", "plain", "store"]
