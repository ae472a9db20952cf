"""What `git.contents.attributes` stores must stay readable to later versions."""

from __future__ import annotations

from gitckpt.git.contents.attributes import AttributeRules, ConversionSettings


def test_the_stored_key_of_conversion_rules_never_changes() -> None:
    """Another key would discard all stored verdicts, and make the next save slow."""
    settings = ConversionSettings(autocrlf="true", filters=(("lfs", True, "clean"),))
    rules = AttributeRules(settings, ((".gitattributes", b"* text=auto"),))
    assert rules.digest([b"limits"]) == "15b1361b0292bd881a6252974bd7bfb6d04e1a07"
