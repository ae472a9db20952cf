"""Compare the screens in the docs with new captures."""

from __future__ import annotations

import shutil

import pytest

from tests import screens

DOCS = screens.PAGE.parent


@pytest.mark.skipif(shutil.which("tmux") is None, reason="there is no tmux here")
@pytest.mark.long
def test_the_screens_are_up_to_date() -> None:
    made = screens.make_all()
    stored = {
        path.relative_to(DOCS).as_posix(): path.read_text("utf-8")
        for path in [screens.PAGE, *screens.PLACE.iterdir()]
    }
    assert made.keys() == stored.keys(), "run: ./dev screens"
    for name, text in made.items():
        assert text == stored[name], f"docs/{name} is outdated; run: ./dev screens"
        assert "/screens" not in text or name == screens.PAGE.name


def test_a_picture_has_the_styles_and_the_text() -> None:
    picture = screens.draw(["\x1b[1;32m$\x1b[0m a  <b>", "\x1b[2m\x1b[91mred\x1b[39mdim\x1b[m"])
    assert '<text x="16.0" y="30" fill="#7ee787" font-weight="bold">$</text>' in picture
    assert '<text x="32.8" y="30">a</text>' in picture
    assert ">&lt;b&gt;</text>" in picture
    assert '<text x="16.0" y="49" fill="#ff7b72" opacity="0.6">red</text>' in picture
    assert '<text x="41.2" y="49" opacity="0.6">dim</text>' in picture
