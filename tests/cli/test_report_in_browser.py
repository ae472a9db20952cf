"""Open a report in Chromium: fold, filter, and show hostile text as text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gitckpt import Store
from tests.cli.conftest import Ckpt
from tests.cli.headless import Browser, find_browser
from tests.cli.test_report import HOSTILE, make_run
from tests.conftest import Checkout

SHOWN = "[...document.querySelectorAll('.change')].filter(c => c.checkVisibility()).length"


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    program = find_browser()
    if program is None:
        pytest.skip("there is no Chromium here: apt-get install chromium-headless-shell")
    started = Browser(program, tmp_path)
    yield started
    started.close()


@pytest.mark.long
def test_the_page_folds_and_filters_and_foreign_text_does_nothing(
    browser: Browser, ckpt: Ckpt, main_checkout: Checkout, tmp_path: Path
) -> None:
    make_run(main_checkout)
    link = "<a href=https://example.org/><link rel=stylesheet href=https://example.org/x.css>"
    main_checkout.write("<img src=x onerror=alert(3)>.txt", f"{HOSTILE}{link}\n")
    with Store.open(main_checkout.path) as store:
        saved = store.save("x-failed", {"k": HOSTILE}, message=HOSTILE + link, errors=[HOSTILE])
    page = tmp_path / "report.html"
    assert ckpt("report", "-o", str(page), at=main_checkout).code == 0
    browser.open(f"{page.as_uri()}#{saved.id[:8]}")

    # Only the checkpoint in the address is open.
    assert browser.evaluate("document.querySelectorAll('details[open]').length") == 1
    assert browser.evaluate(f"document.getElementById('{saved.id[:8]}').open") is True
    browser.evaluate("document.getElementById('close').click()")
    assert browser.evaluate("document.querySelectorAll('details[open]').length") == 0
    browser.evaluate("document.querySelector('details summary').click()")
    assert browser.evaluate("document.querySelectorAll('details[open]').length") == 1
    assert browser.evaluate("document.querySelector('details[open] .body').checkVisibility()")

    # The filter hides what lacks a word, and what is then empty.
    assert browser.evaluate(SHOWN) == 4
    browser.evaluate("document.getElementById('filter').focus()")
    browser.press("FAILED login.py")
    assert browser.evaluate(SHOWN) == 1
    assert browser.evaluate("document.getElementById('count').textContent") == "1 of 4"
    assert browser.evaluate("document.querySelectorAll('section:not([hidden])').length") == 1
    browser.press(" nothing has this")
    assert browser.evaluate(SHOWN) == 0
    browser.evaluate("document.getElementById('filter').select()")
    browser.press(" ")
    assert browser.evaluate(SHOWN) == 4
    browser.evaluate("document.getElementById('open').click()")

    # The style applies: its hash is right.
    assert (
        browser.evaluate("getComputedStyle(document.querySelector('summary')).cursor") == "pointer"
    )
    assert browser.evaluate("document.images.length + document.scripts.length") == 1
    requests = [
        event["params"]["request"]["url"].partition("#")[0]
        for event in browser.events
        if event.get("method") == "Network.requestWillBeSent"
    ]
    assert requests == [page.as_uri()]
    assert browser.names_of_events().isdisjoint(
        {"Page.javascriptDialogOpening", "Log.entryAdded", "Runtime.exceptionThrown"}
    )
