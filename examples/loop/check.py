"""The tests of the example."""

import sys

from greet import greet

try:
    assert greet("Ada") == "Hello, Ada!"
    assert greet() == "Hello, world!"
except (AssertionError, TypeError) as error:
    raise SystemExit(f"1 test failed: {error}") from None
sys.stdout.write("2 tests passed\n")
