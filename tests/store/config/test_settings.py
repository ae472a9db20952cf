"""Settings: the committed file, `git config` above it, and invalid values."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gitckpt import CkptError, ConfigError, Limits, Policy, UsageError
from gitckpt.git.repository import discover_repository
from gitckpt.store.config import settings
from gitckpt.store.config.settings import Settings
from gitckpt.store.snapshot.limits import SECRETS
from tests.conftest import Checkout, allow
from tests.store.conftest import MakeStore
from tests.stores import DAY

ROOT = Path(__file__).parent.parent.parent.parent
DEFAULT = Settings(
    Policy(
        older_than=30 * DAY,
        rewritten_older_than=7 * DAY,
        keep_last=100,
        safety_older_than=7 * DAY,
        safety_keep_last=20,
    ),
    Limits(),
    None,
)


def read(checkout: Checkout) -> Settings:
    """Return the settings with all of the file allowed."""
    allow(checkout)
    found = settings.read_settings(discover_repository(str(checkout.path)))
    found.require_valid_settings()
    return replace(found, loosened=None)


class TestReading:
    def test_the_default(self, checkout: Checkout) -> None:
        assert read(checkout) == DEFAULT

    def test_the_template_says_what_the_default_is(self, checkout: Checkout) -> None:
        checkout.write("gitckpt.toml", settings.settings_template())
        assert read(checkout) == DEFAULT

    def test_the_file(self, checkout: Checkout) -> None:
        checkout.write(
            "gitckpt.toml",
            '[retention]\nolder_than = "2w"\nkeep_last = 0\nrewritten_older_than = "12h"\n',
        )
        assert read(checkout) == Settings(
            Policy(older_than=14 * DAY, rewritten_older_than=DAY // 2, keep_last=0), Limits(), None
        )

    def test_those_for_safety(self, checkout: Checkout) -> None:
        checkout.write(
            "gitckpt.toml", '[retention]\nsafety_older_than = "2w"\nsafety_keep_last = 5\n'
        )
        assert read(checkout).policy == Policy(safety_older_than=14 * DAY, safety_keep_last=5)
        checkout.git("config", "ckpt.safetyOlderThan", "12h")
        checkout.git("config", "ckpt.safetyKeepLast", "0")
        assert read(checkout).policy == Policy(safety_older_than=DAY // 2, safety_keep_last=0)

    def test_those_for_agents(self, checkout: Checkout) -> None:
        checkout.write("gitckpt.toml", '[retention.agent]\nolder_than = "2w"\nlast_after = "8d"\n')
        assert read(checkout).policy == Policy(agent_older_than=14 * DAY, agent_last_after=8 * DAY)
        checkout.git("config", "ckpt.agentOlderThan", "12h")
        checkout.git("config", "ckpt.agentLastAfter", "6h")
        checkout.git("config", "ckpt.agentHourlyAfter", "0s")
        assert read(checkout).policy == Policy(
            agent_older_than=DAY // 2, agent_last_after=DAY // 4, agent_hourly_after=0
        )

    @pytest.mark.parametrize(
        "others", ["[pipelines.ci]\nwrong = true\n", "[agents]\nwrong = true\n", "[steps]\n3 = 3\n"]
    )
    def test_what_others_read_is_for_others_to_judge(self, checkout: Checkout, others: str) -> None:
        checkout.write("gitckpt.toml", f"[retention]\nkeep_last = 3\n{others}")
        assert read(checkout).policy.keep_last == 3
        checkout.write(
            "gitckpt.toml", "pipelines = 3\nagents = 3\nsteps = 3\n[retention]\nkeep_last = 3\n"
        )
        assert read(checkout).policy.keep_last == 3

    def test_git_config_overrides_it_key_by_key(self, checkout: Checkout) -> None:
        checkout.write("gitckpt.toml", '[retention]\nolder_than = "2w"\nkeep_last = 3\n')
        checkout.git("config", "ckpt.olderThan", "1d")
        checkout.git("config", "--add", "ckpt.olderThan", "3d")
        checkout.git("config", "ckpt.rewrittenOlderThan", "1d")
        checkout.git("config", "ckpt.worktreeDir", "../w")
        assert read(checkout) == Settings(
            Policy(older_than=3 * DAY, rewritten_older_than=DAY, keep_last=3), Limits(), "../w"
        )
        checkout.git("config", "ckpt.keepLast", "7")
        assert read(checkout).policy.keep_last == 7

    def test_a_bare_repository(self, main_checkout: Checkout, tmp_path: Path) -> None:
        main_checkout.git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare.git"))
        assert read(Checkout(tmp_path / "bare.git")) == DEFAULT

    def test_from_within_git_the_file_of_the_main_worktree_counts(
        self, main_checkout: Checkout
    ) -> None:
        main_checkout.write("gitckpt.toml", "[retention]\nkeep_last = 3\n")
        assert read(Checkout(main_checkout.path / ".git")).policy.keep_last == 3

    @pytest.mark.parametrize(
        ("text", "message", "hint"),
        [
            ("[retention\n", "1: not TOML: Expected ']' at the end of a table declaration", None),
            ("\n[retntion]\n", "2: unknown key 'retntion' in the file", "did you mean retention?"),
            (
                "keep_last = 3\n",
                "1: unknown key 'keep_last' in the file",
                "known keys: retention, snapshot, pipelines, agents, steps",
            ),
            ("retention = 3\n", "1: retention must be a table", "write [retention] above its keys"),
            (
                "[retention]\nnewest = 3\n",
                "2: unknown key 'newest' in [retention]",
                (
                    "known keys: older_than, keep_last, rewritten_older_than, hourly_after, "
                    "daily_after, runs_older_than, "
                    "safety_older_than, safety_keep_last, agent"
                ),
            ),
            (
                "[retention.agent]\nkeep_last = 3\n",
                "2: unknown key 'keep_last' in [retention.agent]",
                "known keys: hourly_after, last_after, older_than",
            ),
            (
                "[retention]\nagent = 3\n",
                "2: agent in [retention] must be a table, not 3",
                None,
            ),
            (
                "[retention]\nkeep_last = -1\n",
                "2: keep_last in [retention] must be a whole number from 0 on, not -1",
                None,
            ),
            (
                "[retention]\nkeep_last = true\n",
                "2: keep_last in [retention] must be a whole number from 0 on, not true",
                None,
            ),
            (
                "[retention]\nkeep_last = 1.0\n",
                "2: keep_last in [retention] must be a whole number from 0 on, not 1.0",
                None,
            ),
            (
                "[retention]\n\nolder_than = 30\n",
                '3: older_than in [retention] must be an age such as "30d", not 30',
                None,
            ),
            (
                f"[retention]\nolder_than = 0x{'f' * 20}\n",
                f'2: older_than in [retention] must be an age such as "30d", not {16**20 - 1}',
                None,
            ),
            (
                f"[retention]\nolder_than = 0x{'f' * 5000}\n",
                "1: a number of 5,002 digits, where 128 are allowed",
                None,
            ),
            (
                "[x" + ".x" * 300 + "]",
                "1: nests deeper than 256 levels, the parts of dotted keys counted",
                None,
            ),
            (
                '[retention]\nolder_than = "a month"\n',
                "2: older_than in [retention]: 'a month' is not an age",
                "write a number and a unit: 90s, 30m, 12h, 7d or 2w",
            ),
            (
                '[snapshot]\nmax_file_size = "big"\n',
                "2: max_file_size in [snapshot] must be a size such as \"50 MB\", not 'big'",
                None,
            ),
            (
                "[snapshot]\nmax_file_size = 1.5\n",
                '2: max_file_size in [snapshot] must be a size such as "50 MB", not 1.5',
                None,
            ),
            (
                '[snapshot]\ninclude = "*.log"\n',
                (
                    '2: include in [snapshot] must be a list of patterns such as ["*.pem"], not '
                    "'*.log'"
                ),
                None,
            ),
        ],
    )
    def test_a_file_that_cannot_be_understood(
        self, main_checkout: Checkout, text: str, message: str, hint: str | None
    ) -> None:
        file = main_checkout.write("gitckpt.toml", text)
        with pytest.raises(ConfigError) as caught:
            read(main_checkout)
        assert (caught.value.message, caught.value.hint) == (
            f"gitckpt.toml:{message}",
            f"correct it: {file}"
            + (f" ({hint})" if hint else ""),  # with the path: each worktree has such a file
        )

    def test_all_mistakes_of_a_file_are_told_at_once(self, main_checkout: Checkout) -> None:
        text = (
            'typo = 1\n[retention]\nkeep = 1\nolder_than = 3\n\n[snapshot]\ntimeout = "soon"\n'
            "secrets = [1]\n"
        )
        file = main_checkout.write("gitckpt.toml", text)
        with pytest.raises(ConfigError) as caught:
            read(main_checkout)
        assert (caught.value.message, caught.value.hint) == (
            "gitckpt.toml: 5 mistakes",
            f"correct them: {file}",
        )
        assert caught.value.candidates == [
            (
                "gitckpt.toml:1: unknown key 'typo' in the file (known keys: "
                "retention, snapshot, pipelines, agents, steps)"
            ),
            "gitckpt.toml:3: unknown key 'keep' in [retention] (did you mean keep_last?)",
            'gitckpt.toml:4: older_than in [retention] must be an age such as "30d", not 3',
            (
                "gitckpt.toml:7: timeout in [snapshot]: "
                "'soon' is not an age (write a number and a unit: 90s, 30m, 12h, 7d or 2w)"
            ),
            (
                "gitckpt.toml:8: secrets in [snapshot] must be a list of patterns such as "
                '["*.pem"], not [1]'
            ),
        ]

    def test_what_git_config_overrides_is_not_judged(self, main_checkout: Checkout) -> None:
        main_checkout.write("gitckpt.toml", "[retention]\nkeep_last = -1\n")
        main_checkout.git("config", "ckpt.keepLast", "5000000")
        assert read(main_checkout).policy.keep_last == 5_000_000

    def test_the_lines_of_a_file_without_mistakes_are_not_looked_for(
        self, main_checkout: Checkout
    ) -> None:
        main_checkout.write("gitckpt.toml", settings.settings_template())
        code = (
            "import sys; from gitckpt.store.config import settings; "
            "from gitckpt.git.repository import discover_repository\n"
        )
        code += (
            "settings.read_settings(discover_repository(sys.argv[1])); "
            "print('gitckpt.store.config.lines' in sys.modules)"
        )
        command = [sys.executable, "-c", code, str(main_checkout.path)]
        assert (
            subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
            == "False\n"
        )

    @pytest.mark.parametrize(
        ("key", "value", "message"),
        [
            ("ckpt.olderThan", "soon", "ckpt.olderthan in git config: 'soon' is not an age"),
            ("ckpt.olderThan", "", "ckpt.olderthan in git config: '' is not an age"),
            (
                "ckpt.keepLast",
                "many",
                "ckpt.keeplast in git config must be a whole number from 0 on, not 'many'",
            ),
            (
                "ckpt.safetyKeepLast",
                "-1",
                "ckpt.safetykeeplast in git config must be a whole number from 0 on, not '-1'",
            ),
            ("ckpt.safetyOlderThan", "x", "ckpt.safetyolderthan in git config: 'x' is not an age"),
            (
                "ckpt.keepLast",
                "²",
                "ckpt.keeplast in git config must be a whole number from 0 on, not '²'",
            ),
        ],
    )
    def test_a_setting_that_cannot_be_understood(
        self, main_checkout: Checkout, key: str, value: str, message: str
    ) -> None:
        main_checkout.git("config", key, value)
        with pytest.raises(UsageError) as caught:
            read(main_checkout)
        assert caught.value.message == message

    def test_a_file_that_cannot_be_read(self, main_checkout: Checkout) -> None:
        (main_checkout.path / "gitckpt.toml").mkdir()
        with pytest.raises(UsageError) as caught:
            read(main_checkout)
        assert (
            caught.value.message == f"cannot read {main_checkout.path}/gitckpt.toml: Is a directory"
        )

    def test_a_file_that_is_not_utf_8(self, main_checkout: Checkout) -> None:
        main_checkout.write("gitckpt.toml", b"# caf\xe9\n[retention]\nkeep_last = 3\n")
        assert read(main_checkout).policy.keep_last == 3


class TestMistakes:
    """Beside a mistake, the strictest value of each key applies.

    That value keeps checkpoints the longest and captures the least.
    """

    FILE = """
[retention]
keep_last = 500
older_than = "1d"
daily_after = "soon"
[snapshot]
max_file_size = "1 MB"
include = ["*.log"]
secrets = ["mine"]
"""

    def test_of_the_file_and_what_is_built_in(self, main_checkout: Checkout) -> None:
        main_checkout.write("gitckpt.toml", self.FILE.replace("soon", "9d"))
        allow(main_checkout)
        main_checkout.write("gitckpt.toml", self.FILE)
        found = settings.read_settings(discover_repository(str(main_checkout.path)))
        assert found.policy == Policy(keep_last=500)
        limits = Limits(max_file_size=1_000_000, secrets=("mine", *SECRETS))
        assert replace(found.limits, configured=None) == limits
        assert found.loosened is None
        assert found.problem == (
            "gitckpt.toml:5: daily_after in [retention]: 'soon' is not an age; "
            "using built-in settings, or stricter ones that can be read, "
            f"until this is corrected: {main_checkout.path}/gitckpt.toml"
        )

    def test_of_what_head_has_where_the_file_cannot_be_read(self, main_checkout: Checkout) -> None:
        text = '[retention]\nkeep_last = 500\nolder_than = "1d"\n'
        main_checkout.commit("settings", **{"gitckpt.toml": text})
        for text in ("<<<<<<< HEAD\n", "[retention]\nkeep_last = 300\nnext = 1\n"):
            main_checkout.write("gitckpt.toml", text)
            assert settings.read_settings(
                discover_repository(str(main_checkout.path))
            ).policy == Policy(keep_last=500)
        main_checkout.commit("broken", **{"gitckpt.toml": "<<<<<<< HEAD\n"})
        assert (
            settings.read_settings(discover_repository(str(main_checkout.path))).policy == Policy()
        )

    def test_a_bad_value_in_git_config_leaves_the_others(self, main_checkout: Checkout) -> None:
        main_checkout.write("gitckpt.toml", "[retention]\nkeep_last = 3\n")
        allow(main_checkout)
        main_checkout.git("config", "ckpt.keepLast", "many")
        main_checkout.git("config", "ckpt.olderThan", "1d")
        found = settings.read_settings(discover_repository(str(main_checkout.path)))
        assert found.policy == Policy(older_than=DAY)
        assert found.problem == (
            "ckpt.keeplast in git config must be a whole number from 0 on, not 'many'; "
            "using built-in settings, or stricter ones that can be read"
        )


class TestWriting:
    def test_a_new_file(self, tmp_path: Path) -> None:
        path = tmp_path / "gitckpt.toml"
        assert settings.write_template(str(path))
        assert (path.read_text(), settings.is_unchanged_template(str(path))) == (
            settings.settings_template(),
            True,
        )
        assert not settings.write_template(str(path))

    def test_comments_values_and_line_ends_stay(self, tmp_path: Path) -> None:
        path = tmp_path / "gitckpt.toml"
        mine = (
            "# mine\r\n[snapshot]\r\n[retention] # here\r\nkeep_last = 7   # seven\r\n"
            "# [pipelines.mine]\r\n"
        )
        path.write_bytes(mine.encode())
        assert not settings.write_template(str(path))
        assert (path.read_bytes(), settings.is_unchanged_template(str(path))) == (
            mine.encode(),
            False,
        )

    def test_a_missing_table_is_added(self, main_checkout: Checkout) -> None:
        path = main_checkout.write("gitckpt.toml", "# only a comment\n")
        assert settings.write_template(str(path))
        assert path.read_text().startswith("# only a comment\n")
        assert read(main_checkout) == DEFAULT
        assert not settings.write_template(str(path))

    def test_an_example_of_a_pipeline_is_added(self, main_checkout: Checkout) -> None:
        mine = "[snapshot]\r\n[retention] # here\r\nkeep_last = 7\r\n"
        path = main_checkout.write("gitckpt.toml", mine)
        example = settings.settings_template()[
            settings.settings_template().index("\n# Phases") :
        ].replace("\n", "\r\n")
        assert settings.write_template(str(path))
        assert path.read_bytes().decode() == mine + example
        assert not settings.write_template(str(path))
        assert read(main_checkout).policy.keep_last == 7

    @pytest.mark.parametrize("mine", ["[pipelines.a]\n", "[pipelines]\na.phases = []\n"])
    def test_where_there_is_a_pipeline_no_example_is_added(self, tmp_path: Path, mine: str) -> None:
        path = tmp_path / "gitckpt.toml"
        path.write_text(mine)
        settings.write_template(str(path))
        assert path.read_text().startswith(mine)
        assert "# Phases" not in path.read_text()

    def test_what_is_not_toml_stays(self, tmp_path: Path) -> None:
        path = tmp_path / "gitckpt.toml"
        path.write_text("[retention\n")
        with pytest.raises(UsageError) as caught:
            settings.write_template(str(path))
        assert caught.value.message.startswith(f"{path} is not TOML: ")
        assert path.read_text() == "[retention\n"

    def test_where_it_cannot_be_written(self, tmp_path: Path) -> None:
        path = tmp_path / "no" / "gitckpt.toml"
        with pytest.raises(CkptError) as caught:
            settings.write_template(str(path))
        assert caught.value.message == f"cannot write {path}: {os.strerror(2)}"


class TestSettingsOfGitInATrackedFile:
    """An included configuration file that is tracked does not count."""

    @pytest.fixture
    def including(self, main_checkout: Checkout) -> Checkout:
        main_checkout.git("config", "include.path", "../shared.cfg")
        main_checkout.write(
            "shared.cfg", "[ckpt]\n    olderThan = 1d\n    worktreeDir = /elsewhere\n"
        )
        return main_checkout

    def test_they_do_not_count(self, including: Checkout, tmp_path: Path) -> None:
        including.git("worktree", "add", "--quiet", str(tmp_path / "linked"))
        including.git("add", "shared.cfg")
        for place in (including.path, tmp_path / "linked"):
            found = settings.read_settings(discover_repository(str(place)))
            assert (found.policy, found.worktree_dir) == (Policy(), None)

    def test_one_that_is_not_tracked_is_the_users_own(self, including: Checkout) -> None:
        found = settings.read_settings(discover_repository(str(including.path)))
        assert found.worktree_dir == "/elsewhere"

    def test_the_users_own_file_counts_where_the_home_directory_is_a_repository(
        self, make_checkout: Callable[..., Checkout], sealed: Path
    ) -> None:
        home = make_checkout(str(sealed))
        home.git("config", "--global", "ckpt.worktreeDir", "/elsewhere")
        home.git("add", ".gitconfig")
        assert settings.read_settings(discover_repository(str(sealed))).worktree_dir == "/elsewhere"

    def test_doctor_names_them(self, including: Checkout, make_store: MakeStore) -> None:
        including.git("add", "shared.cfg")
        said = make_store(including).examine().findings
        found = [each for each in said if each.code == "settings-tracked"]
        assert [os.path.normpath(each.object) for each in found] == [
            str(including.path / "shared.cfg")
        ]
        assert "ckpt.olderthan, ckpt.worktreedir" in found[0].sentence
