"""`git ckpt report` writes checkpoints as one page, in which foreign text is text."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from gitckpt import Attempt, Store
from gitckpt.cli.report import contents
from tests.agents.hook_calls import bash, call_hook
from tests.cli.conftest import Ckpt
from tests.conftest import Checkout

HOSTILE = "</pre></script><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[2J\u202egpj"
TOKEN = "ghp_" + "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA2bC4"
KEY_LINE = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"


class Page(HTMLParser):
    """The elements and the visible text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.source = text
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._inside = ""
        self.bodies: dict[str, list[str]] = {"script": [], "style": []}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside in self.bodies:
            self.bodies[self._inside].append(data)
        else:
            self.text += data

    def count(self, tag: str, **attributes: str) -> int:
        return sum(
            name == tag and attributes.items() <= {k: v or "" for k, v in found.items()}.items()
            for name, found in self.tags
        )


def read_report(ckpt: Ckpt, at: Checkout, *words: str) -> Page:
    done = ckpt("report", *words, "-o", "../report.html", "--force", at=at)
    assert (done.code, done.out) == (0, "../report.html\n"), done.err
    return Page((at.path.parent / "report.html").read_text("utf-8"))


def make_run(checkout: Checkout) -> str:
    """Record a run of two phases; the second fails, then succeeds."""
    with Store.open(checkout.path) as store:
        run = str(store.record("run-started", {}, start="add-login").run)
        checkout.write("plan.md", "one\n")
        store.save("plan-complete", {"step": 1}, run=run, message="make a plan")
        checkout.write("login.py", "print('login')\n")
        attempt = Attempt("build", 1, ended="failed", exit_code=3, seconds=1.5, output="2 failed\n")
        state = {"step": 2, "loop": {"iterations": 1, "allowed": 5, "cost_usd": 1.25}}
        details = {
            "run": run,
            "trigger": "phase",
            "attempt": attempt,
            "errors": ["tests: 2 failed"],
        }
        store.save("build-failed", state, **details)  # type: ignore[arg-type]
    return run


def test_a_run_is_shown_with_phases_changes_errors_and_cost(
    ckpt: Ckpt, main_checkout: Checkout
) -> None:
    run = make_run(main_checkout)
    page = read_report(ckpt, main_checkout, run)
    assert page.count("section") == 1
    for text in (
        run,
        "plan",
        "make a plan",
        "tests: 2 failed",
        "2 failed",
        "exit code 3",
        "1.25 USD",
    ):
        assert text in page.text, text
    assert "+print('login')" in page.text
    assert "/step = 1 → 2" in page.text
    assert page.count("circle", **{"class": "failed"}) == 1
    assert page.count("details") == 3
    assert all("open" not in attributes for tag, attributes in page.tags if tag == "details")


@pytest.mark.long
def test_turns_are_shown_with_prompt_guards_and_changes(
    ckpt: Ckpt, main_checkout: Checkout
) -> None:
    call_hook("UserPromptSubmit", main_checkout, prompt="Add a login\nwith a form")
    main_checkout.write("login.py", "one\n")
    call_hook("PreToolUse", main_checkout, **bash("git reset --hard"))
    main_checkout.write("form.py", "two\n")
    call_hook("Stop", main_checkout)
    call_hook("UserPromptSubmit", main_checkout, prompt="Explain")
    call_hook("Stop", main_checkout)
    page = read_report(ckpt, main_checkout, "add-a-login")
    for text in ("Turn 1: Add a login", "with a form", "Turn 2: Explain", "git reset --hard"):
        assert text in page.text, text
    turn = read_report(ckpt, main_checkout, "add-a-login:1")
    assert "+two" in turn.text
    assert "Turn 2" not in turn.text


def test_all_checkpoints_or_one_or_recent_ones(ckpt: Ckpt, main_checkout: Checkout) -> None:
    run = make_run(main_checkout)
    with Store.open(main_checkout.path) as store:
        saved = store.save("idea-complete", {}, message="an idea")
    page = read_report(ckpt, main_checkout)
    assert page.count("section") == 2
    assert "Outside of runs" in page.text
    single = read_report(ckpt, main_checkout, saved.id)
    assert (single.count("circle"), run in single.text) == (1, False)
    assert read_report(ckpt, main_checkout, "--since", "1h").count("circle") == 4
    empty = read_report(ckpt, main_checkout, "--since", "now")
    assert "No checkpoints." in empty.text


def test_foreign_text_is_shown_as_text(ckpt: Ckpt, main_checkout: Checkout) -> None:
    main_checkout.write("<img src=x onerror=alert(3)>.txt", HOSTILE + "\n")
    with Store.open(main_checkout.path) as store:
        store.save("x-failed", {"a<b>": HOSTILE}, message=HOSTILE, errors=[HOSTILE], agent=HOSTILE)
    page = read_report(ckpt, main_checkout)
    own = {tag for tag, _ in page.tags}
    assert own.isdisjoint({"img", "iframe", "object", "link", "base", "form"})
    assert (page.count("script"), page.count("style")) == (1, 1)
    handlers = [name for _, found in page.tags for name in found if name.startswith("on")]
    assert handlers == [name for name in found_links(page) if "//" in name] == []
    assert page.text.count("<script>alert(1)</script><img src=x onerror=alert(2)>") >= 4
    assert r"\x1b[2J\u{202e}gpj" in page.text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page.source)


def found_links(page: Page) -> list[str]:
    """Return all addresses that a page refers to."""
    names = ("href", "src", "xlink:href", "action", "data")
    return [str(found[name]) for _, found in page.tags for name in names if name in found]


def test_the_policy_allows_the_own_script_and_style_alone(
    ckpt: Ckpt, main_checkout: Checkout
) -> None:
    page = read_report(ckpt, main_checkout)
    (policy,) = [str(found["content"]) for tag, found in page.tags if "http-equiv" in found]
    assert policy.startswith("default-src 'none'; ")
    for kind, bodies in page.bodies.items():
        (body,) = bodies
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert [found for _, found in page.tags if "style" in found] == []


def test_likely_secrets_are_masked(ckpt: Ckpt, main_checkout: Checkout) -> None:
    key = f"-----BEGIN PRIVATE KEY-----\n{KEY_LINE}\n{KEY_LINE}\n-----END PRIVATE KEY-----\n"
    main_checkout.write("old", key)
    main_checkout.git("add", "old")
    main_checkout.commit("a key", old=key)
    main_checkout.write("old", "gone\n")
    main_checkout.write("new", f"token = {TOKEN}\n")
    with Store.open(main_checkout.path) as store:
        store.save("x-failed", {"token": TOKEN}, message=f"use {TOKEN}", errors=[TOKEN])
    page = read_report(ckpt, main_checkout)
    assert TOKEN not in page.source
    assert KEY_LINE not in page.source
    assert "private-key]" in page.text
    assert "+gone" in page.text


def test_an_existing_file_is_kept_unless_forced(ckpt: Ckpt, main_checkout: Checkout) -> None:
    page = main_checkout.write("page.html", "mine\n")
    done = ckpt("report", "-o", "page.html", at=main_checkout)
    assert (done.code, page.read_text()) == (2, "mine\n")
    assert "error: page.html exists already\n" in done.err
    assert "--force" in done.err
    assert ckpt("report", "-o", "page.html", "--force").code == 0
    assert page.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], "error: -o FILE is missing\n"),
        (["-o", "nothing/page.html"], "error: cannot write nothing/page.html: No such file"),
        (["-o", ".", "--force"], "error: . is a directory\n"),
        (["nothing", "-o", "page.html"], "error: no checkpoint, run or commit is named 'nothing'"),
        (["-o", "page.html", "--since", "soon"], "error: 'soon' is not a point in time"),
    ],
)
def test_what_cannot_be_written_is_an_error(
    ckpt: Ckpt, main_checkout: Checkout, words: list[str], error: str
) -> None:
    done = ckpt("report", *words, at=main_checkout)
    assert done.code != 0
    assert error in done.err
    assert not Path(main_checkout.path / "page.html").exists()


def test_large_changes_are_cut(
    ckpt: Ckpt, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "MOST", 2)
    main_checkout.write("many", "line\n" * 50_000)
    with Store.open(main_checkout.path) as store:
        store.save("a-complete", {})
        main_checkout.write("many", "other line\n" * 6000)
        store.save("b-complete", {})
        main_checkout.write("many", "<" * 200_000)
        store.save("c-complete", {"text": "x" * 10_000})
        main_checkout.write("few", "one\n")
        store.save("d-complete", {})
    page = read_report(ckpt, main_checkout)
    assert page.count("circle") == 2
    assert "2 older checkpoints are not on this page." in page.text
    assert "more lines of the diff are not shown" in page.text
    assert len(page.source) < 150_000
    monkeypatch.setattr(contents, "MOST", 10)
    assert "changed lines are too many to show" in read_report(ckpt, main_checkout).text
