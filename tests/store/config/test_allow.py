"""Tracked settings that loosen limits apply only once the user allows them."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as usual
from hypothesis import strategies as some

from gitckpt import CkptError, Limits, Policy, Store
from gitckpt.git.repository import Repository
from gitckpt.store.config import settings
from gitckpt.store.config.settings import KEYS, Settings, SettingsReader
from gitckpt.store.snapshot.limits import SECRETS
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout, allow, examples, repository_of
from tests.stores import DAY, default_settings

LOOSE = (
    '[retention]\nolder_than = "1d"\nkeep_last = 500\n[snapshot]\ninclude = ["*.log"]\n'
    'secrets = ["*.mine"]\n'
)
LOOSENED = ["retention.older_than", "snapshot.include", "snapshot.secrets"]
LINE = (
    f"gitckpt.toml loosens {', '.join(LOOSENED)}; "
    "until you allow that, built-in values apply: git ckpt allow"
)


def here(checkout: Checkout) -> Repository:
    return repository_of(checkout)


def read(checkout: Checkout, text: str | None = None) -> Settings:
    if text is not None:
        checkout.write("gitckpt.toml", text)
    found = settings.read_settings(here(checkout))
    return replace(found, limits=replace(found.limits, configured=None))


def to_allow(found: Settings) -> list[str]:
    """Return the keys that do not apply as the file says."""
    return (
        list(found.loosened.values) if found.loosened is not None and found.loosening_notice else []
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("key", "tight", "loose", "instead"),
    [
        ("retention.older_than", "'31d'", "'29d'", 30 * DAY),
        ("retention.keep_last", "101", "99", 100),
        ("retention.rewritten_older_than", "'8d'", "'6d'", 7 * DAY),
        ("retention.runs_older_than", "'8d'", "'6d'", 7 * DAY),
        ("retention.agent.hourly_after", "'2d'", "'1h'", DAY),
        ("retention.agent.last_after", "'8d'", "'6d'", 7 * DAY),
        ("retention.agent.older_than", "'31d'", "'29d'", 30 * DAY),
        ("retention.safety_older_than", "'8d'", "'0s'", 7 * DAY),
        ("retention.safety_keep_last", "21", "19", 20),
        ("snapshot.include", "[]", "['!a']", ()),
        ("snapshot.max_file_size", "'1 kB'", "'51 MB'", 50_000_000),
        (
            "snapshot.secrets",
            str([*map(str.upper, SECRETS), "*.mine"]),
            str([*SECRETS[1:], "*.mine"]),
            (*SECRETS[1:], "*.mine", SECRETS[0]),
        ),
        ("snapshot.submodules", "'none'", None, None),
        ("snapshot.timeout", "'1s'", "'61s'", 60.0),
        ("snapshot.budget", "'1s'", "'6s'", 5.0),
    ],
)
def test_which_value_is_the_tighter_one(
    main_checkout: Checkout, key: str, tight: str, loose: str | None, instead: object
) -> None:
    table, _, name = key.rpartition(".")
    is_limit = table == "snapshot"
    attribute = f"agent_{name}" if table == "retention.agent" else name

    def said(value: str) -> tuple[list[str], object]:
        found = read(main_checkout, f"[{table}]\n{name} = {value}\n")
        return to_allow(found), getattr(found.limits if is_limit else found.policy, attribute)

    usual_value = getattr(Limits() if is_limit else Policy(), attribute)
    assert said(tight)[0] == []
    assert said(tight)[1] != usual_value or key == "snapshot.include"
    if loose is not None:
        assert said(loose) == ([key], instead)
        allow(main_checkout)
        assert said(loose)[0] == []
        assert said(loose)[1] != instead


def test_what_is_tighter_holds_beside_what_does_not(checkout: Checkout) -> None:
    found = read(checkout, LOOSE)
    assert to_allow(found) == LOOSENED
    assert found.loosening_notice == LINE
    assert found.policy == Policy(keep_last=500)
    assert found.limits == Limits(secrets=("*.mine", *SECRETS))
    allow(checkout)
    found = read(checkout)
    assert found.loosening_notice == ""
    assert found.loosened is not None
    assert list(found.loosened.values) == LOOSENED
    assert found.policy == Policy(older_than=DAY, keep_last=500)
    assert found.limits == Limits(include=("*.log",), secrets=("*.mine",))


AGES = some.integers(0, 10**6).flatmap(
    lambda count: some.sampled_from([f"'{count}{unit}'" for unit in "smhdw"])
)
COUNTS = some.integers(0, 10**6).map(str)
SIZES = some.tuples(some.integers(0, 10**4), some.sampled_from(["", " kB", " MB", " GB"])).map(
    lambda said: f"'{said[0]}{said[1]}'"
)
PATTERNS = some.lists(
    some.sampled_from([*SECRETS, "*", "*.log", "!a", ".ENV*", "x"]), max_size=30
).map(str)
VALUES = {
    **dict.fromkeys(
        [key for key in KEYS if key.endswith(("_than", "_after", "timeout", "budget"))], AGES
    ),
    **dict.fromkeys([key for key in KEYS if key.endswith("_last")], COUNTS),
    "snapshot.max_file_size": SIZES,
    "snapshot.include": PATTERNS,
    "snapshot.secrets": PATTERNS,
    "snapshot.submodules": some.sampled_from(["'all'", "'none'"]),
}


@pytest.mark.long
@given(values=some.fixed_dictionaries({}, optional=VALUES), ages=some.lists(AGES, max_size=2))
@usual(
    deadline=None,
    max_examples=examples(150),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_what_is_not_allowed_is_never_looser_than_what_is_built_in(
    main_checkout: Checkout, values: dict[str, str], ages: list[str]
) -> None:
    assert set(VALUES) == set(KEYS)
    settings.remove_approvals(here(main_checkout))
    tables: dict[str, str] = {"retention": "", "retention.agent": "", "snapshot": ""}
    for key, value in values.items():
        table, _, name = key.rpartition(".")
        tables[table] += f"{name} = {value}\n"
    text = "".join(f"[{name}]\n{lines}" for name, lines in tables.items())
    text += "".join(
        f"[pipelines.p{number}]\nretention = {age}\n" for number, age in enumerate(ages)
    )
    found, built_in = read(main_checkout, text), Limits()
    ages_and_counts = [key for key in KEYS if key.startswith("retention.")]
    for name in (key.partition(".")[2].replace(".", "_") for key in ages_and_counts):
        assert getattr(found.policy, name) >= getattr(Policy(), name)
    assert not found.policy.everything
    limits = found.limits
    assert limits.include == ()
    assert limits.max_file_size is not None
    assert limits.max_file_size <= 50_000_000
    assert {each.lower() for each in limits.secrets} >= {each.lower() for each in built_in.secrets}
    assert limits.timeout <= built_in.timeout
    assert limits.budget <= built_in.budget
    assert limits.submodules <= built_in.submodules
    for number in range(len(ages)):
        assert (
            settings.age_of_runs(here(main_checkout), f"p{number}", 0)
            >= found.policy.runs_older_than
        )
    allow(main_checkout)
    allowed = read(main_checkout)
    assert allowed.loosening_notice == ""
    assert (allowed == found) == (found.loosened is None)


class TestWhatIsAllowed:
    @pytest.mark.parametrize(
        "text",
        [
            f"# a comment\n{LOOSE}\n[[pipelines.new.phases]]\nname = 'a'\nrun = 'b'\n",
            f"{LOOSE}[pipelines.new]\nretention = '8d'\n",
            (
                '[snapshot]\nsecrets = ["*.mine"]\ninclude = [ "*.log" ] # why\n[retention]\n'
                'keep_last = 0x1f4\nolder_than = "24h"\n'
            ),
            '[retention]\nkeep_last = 500\n[snapshot]\nmax_file_size = "1 kB"\n',
        ],
    )
    def test_are_values_and_not_the_text_around_them(self, checkout: Checkout, text: str) -> None:
        read(checkout, LOOSE)
        allow(checkout)
        assert read(checkout, text).loosening_notice == ""

    @pytest.mark.parametrize(
        "text",
        [
            LOOSE.replace("1d", "23h"),
            LOOSE.replace("500", "501"),
            LOOSE.replace("keep_last = 500\n", ""),
            LOOSE.replace("*.log", "*"),
            LOOSE.replace('"*.mine"', ""),
            f"{LOOSE}submodules = 'none'\n",
            f"{LOOSE}[pipelines.new]\nretention = '1d'\n",
        ],
    )
    def test_asks_again_after_any_change_of_a_value(self, checkout: Checkout, text: str) -> None:
        read(checkout, LOOSE)
        allow(checkout)
        found = read(checkout, text)
        assert set(to_allow(found)) >= set(LOOSENED)
        assert found.policy.older_than == Policy().older_than
        assert found.limits.include == ()
        assert read(checkout, LOOSE).loosening_notice == ""

    def test_asks_again_where_git_config_stops_to_overrule_a_value(
        self, checkout: Checkout
    ) -> None:
        checkout.git("config", "ckpt.olderThan", "90d")
        assert to_allow(read(checkout, LOOSE)) == LOOSENED[1:]
        allow(checkout)
        assert read(checkout).loosening_notice == ""
        checkout.git("config", "--unset", "ckpt.olderThan")
        assert to_allow(read(checkout)) == LOOSENED
        assert read(checkout).policy.older_than == 30 * DAY

    def test_counts_in_every_worktree_and_branch(
        self, main_checkout: Checkout, tmp_path: Path
    ) -> None:
        main_checkout.git("worktree", "add", "--quiet", str(tmp_path / "other"))
        other = Checkout(tmp_path / "other", main_checkout.path)
        read(main_checkout, LOOSE)
        assert read(other, LOOSE).loosening_notice != ""
        allow(main_checkout)
        assert read(other).loosening_notice == ""

    def test_is_forgotten_with_the_private_directory_and_by_a_clone(
        self, main_checkout: Checkout, tmp_path: Path
    ) -> None:
        main_checkout.commit("loose", **{"gitckpt.toml": LOOSE})
        allow(main_checkout)
        main_checkout.git("clone", "--quiet", ".", str(tmp_path / "clone"))
        assert read(Checkout(tmp_path / "clone")).loosening_notice != ""
        assert settings.remove_approvals(here(main_checkout))
        assert not settings.remove_approvals(here(main_checkout))
        assert read(main_checkout).loosening_notice != ""

    def test_is_noted_for_its_user_alone(self, main_checkout: Checkout) -> None:
        before = os.umask(0)
        try:
            read(main_checkout, LOOSE)
            allow(main_checkout)
        finally:
            os.umask(before)
        path = Path(settings.path_approval(here(main_checkout)))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert [len(line) for line in path.read_text().split()] == [64]

    @pytest.mark.parametrize("garbage", ["", "\0\xff\n", "0" * 64, "a directory"])
    def test_a_note_that_cannot_be_read_allows_nothing(
        self, main_checkout: Checkout, garbage: str
    ) -> None:
        path = Path(here(main_checkout).make_private_dir()) / settings.APPROVAL_FILE
        path.mkdir() if garbage == "a directory" else path.write_text(garbage)
        assert to_allow(read(main_checkout, LOOSE)) == LOOSENED
        if garbage == "a directory":
            for call in (
                lambda: allow(main_checkout),
                lambda: settings.remove_approvals(here(main_checkout)),
            ):
                with pytest.raises(CkptError, match=r"cannot write .*: Is a directory"):
                    call()
        else:
            allow(main_checkout)
            assert read(main_checkout).loosening_notice == ""

    def test_a_link_in_place_of_the_note_is_not_followed(
        self, main_checkout: Checkout, tmp_path: Path
    ) -> None:
        elsewhere = tmp_path / "elsewhere"
        found = read(main_checkout, LOOSE)
        assert found.loosened is not None
        elsewhere.write_text(found.loosened.digest)
        (Path(here(main_checkout).make_private_dir()) / settings.APPROVAL_FILE).symlink_to(
            elsewhere
        )
        assert read(main_checkout).loosening_notice == LINE
        with pytest.raises(CkptError, match="cannot write "):
            allow(main_checkout)
        assert elsewhere.read_text() == found.loosened.digest

    def test_of_several_at_once_none_is_lost(self, main_checkout: Checkout) -> None:
        digests = [settings.digest_of("settings", [str(number)]) for number in range(20)]
        others = [
            threading.Thread(
                target=lambda one=one: settings.record_approval(here(main_checkout), [one])
            )
            for one in digests
        ]
        for each in others:
            each.start()
        for each in others:
            each.join()
        assert settings.read_approved_digests(here(main_checkout)) == set(digests)

    def test_init_allows_nothing_that_was_there(self, main_checkout: Checkout) -> None:
        main_checkout.write("gitckpt.toml", LOOSE)
        with Store.open(main_checkout.path) as store:
            store.install("none")
        assert to_allow(read(main_checkout)) == LOOSENED


def test_what_git_config_says_is_the_users_own(checkout: Checkout) -> None:
    for name, value in (
        ("olderThan", "0s"),
        ("keepLast", "0"),
        ("include", "*"),
        ("secrets", ""),
        ("maxFileSize", "9 GB"),
    ):
        checkout.git("config", f"ckpt.{name}", value)
    found = read(
        checkout,
        (
            '[retention]\nolder_than = "1s"\nkeep_last = 1\n[snapshot]\ninclude = ["a"]\n'
            'secrets = ["b"]\n'
        ),
    )
    assert found.loosened is None
    assert found.policy == Policy(older_than=0, keep_last=0)
    assert found.limits == Limits(include=("*",), secrets=(), max_file_size=9_000_000_000)


def test_what_a_program_hands_over_is_its_own(main_checkout: Checkout) -> None:
    main_checkout.write("gitckpt.toml", LOOSE)
    main_checkout.write("a.key", "x")
    with Store.open(main_checkout.path) as store:
        assert [each.path for each in store.capture(Limits(secrets=())).omitted] == []
        assert [each.path for each in store.capture().omitted] == ["a.key"]
        loosened = store.loosened()
        assert loosened is not None
        store.allow(loosened)
        assert [each.path for each in store.capture().omitted] == []


def test_a_process_that_lives_on_learns_that_it_was_allowed(main_checkout: Checkout) -> None:
    main_checkout.write(".gitignore", "*.log\n")
    main_checkout.write("a.log", "x")
    main_checkout.commit("rules", **{"gitckpt.toml": '[snapshot]\ninclude = ["*.log"]\n'})
    with Store.open(main_checkout.path) as store:
        for _ in range(4):
            assert not store.capture().dirty
        allow(main_checkout)
        assert store.capture().dirty


class TestPipelines:
    TEXT = """
[pipelines]
a = { retention = "1d" }
b = { retention = "9d" }
"x\\ny" = { retention = "0s" }
c = { retention = 3 }
d = { retention = "soon" }
e = 3
"""

    def test_let_their_runs_go_no_earlier_than_any_run(self, main_checkout: Checkout) -> None:
        assert to_allow(read(main_checkout, self.TEXT)) == ["pipelines.a.retention"]

        def age_of(name: str, said: int) -> int:
            return settings.age_of_runs(here(main_checkout), name, said)

        assert (age_of("a", DAY), age_of("b", 9 * DAY)) == (7 * DAY, 9 * DAY)
        allow(main_checkout)
        assert (age_of("a", DAY), age_of("a", DAY - 1), age_of("b", DAY)) == (DAY, 7 * DAY, 7 * DAY)

    def test_are_measured_by_what_the_user_says(self, main_checkout: Checkout) -> None:
        main_checkout.git("config", "ckpt.runsOlderThan", "1h")
        assert read(main_checkout, self.TEXT).loosened is None


class TestRules:
    def test_one_line_says_what_does_not_apply(self, checkout: Checkout) -> None:
        checkout.write("gitckpt.toml", LOOSE)
        told: list[str] = []
        rules = SettingsReader(here(checkout), told.append)
        for _ in range(2):
            assert rules.read_settings().policy == Policy(keep_last=500)
        assert told == [LINE]
        allow(checkout)
        assert rules.read_settings().policy == Policy(older_than=DAY, keep_last=500)
        assert told == [LINE]

    def test_what_loosens_nothing_is_not_spoken_of(self, checkout: Checkout) -> None:
        checkout.write("gitckpt.toml", default_settings())
        told: list[str] = []
        SettingsReader(here(checkout), told.append).read_settings()
        assert told == []

    def test_each_worktree_has_its_own(
        self, main_checkout: Checkout, make_store: Callable[..., Store], tmp_path: Path
    ) -> None:
        main_checkout.write("gitckpt.toml", LOOSE)
        store = checkpoints_of_store(make_store(main_checkout))
        assert store.settings_reader.read_settings().loosening_notice != ""
        other = Checkout(tmp_path / "other", main_checkout.path)
        main_checkout.git("worktree", "add", "--quiet", str(other.path))
        with store.open_store_for(here(other), "plumbing") as seen:
            assert seen.settings_reader.read_settings().loosening_notice == ""
