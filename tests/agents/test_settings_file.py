"""Hooks are added to the settings of a client, and removed without a trace."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitckpt import UsageError
from gitckpt.agents import settings_file

HOOK = {"hooks": [{"type": "command", "command": "git ckpt hook agent claude", "timeout": 30}]}
ENTRIES = {"UserPromptSubmit": HOOK, "PreToolUse": {"matcher": "Bash", **HOOK}, "Stop": HOOK}

FILES = [
    "{}",
    "{ }",
    "{ \n}",
    '{"hooks": { \n}}',
    "{}\n",
    "{\n}\n",
    '{"a":1}',
    '{\n    // my settings\n    "permissions": {"allow": ["x",]},\n}\n',
    '{\n  "hooks": {\n    "Stop": [\n      {"hooks": [{"type": "command"}]}\n    ]\n  }\n}',
    '{"hooks":{}}',
    '{"hooks":{"Stop":[]}, "b":2}',
    '{"hooks":{"Stop":[],"Other":[ ]}}',
    '{"hooks": {\n}}',
    '/* */ {\n\t"hooks": {"PreToolUse": [{"matcher":"Edit"}], /* z */ },\n\t"é": "ü\\"x" // end\n}',
    '\ufeff{"a": 1}',
    '{\r\n  "a": 1\r\n}\r\n',
]


@pytest.mark.parametrize("text", FILES)
def test_what_was_added_can_be_removed_byte_for_byte(text: str) -> None:
    added = settings_file.add(text, ENTRIES, "settings.json")
    for event in ENTRIES:
        assert f'"{event}"' in added
    assert settings_file.remove(added, "settings.json") == text


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
hook_tables = st.dictionaries(
    st.sampled_from(["Stop", "PreToolUse", "Other"]), st.lists(json_values, max_size=2)
)


@pytest.mark.long
@given(
    st.dictionaries(st.text(max_size=6).filter(lambda key: key != "hooks"), json_values),
    st.none() | hook_tables,
    st.sampled_from([None, 0, 2, "\t"]),
)
def test_any_settings_keep_what_they_had(
    settings: dict[str, object], hooks: object, indent: int | str | None
) -> None:
    document = settings if hooks is None else {**settings, "hooks": hooks}
    text = json.dumps(document, indent=indent)
    added = settings_file.add(text, ENTRIES, "settings.json")
    parsed = json.loads(added)
    for event, entry in ENTRIES.items():
        assert parsed["hooks"][event][-1] == entry
    assert {key: value for key, value in parsed.items() if key != "hooks"} == settings
    assert settings_file.remove(added, "settings.json") == text


def test_a_new_file_has_only_the_hooks_and_vanishes_with_them() -> None:
    added = settings_file.add(None, ENTRIES, "settings.json")
    assert json.loads(added) == {"hooks": {event: [entry] for event, entry in ENTRIES.items()}}
    assert settings_file.remove(added, "settings.json") is None


def test_hooks_of_others_stay() -> None:
    added = settings_file.add('{"hooks": {"Stop": [{"hooks": []}]}}', ENTRIES, "settings.json")
    edited = added.replace('"Stop": [', '"Stop": [{"matcher": "mine", "hooks": []}, ')
    remaining = settings_file.remove(edited, "settings.json")
    assert json.loads(str(remaining)) == {
        "hooks": {"Stop": [{"matcher": "mine", "hooks": []}, {"hooks": []}]}
    }


def test_a_hook_beside_that_of_gitckpt_stays() -> None:
    mine = {"type": "command", "command": "./mine.sh"}
    entry = {"matcher": "Bash", "hooks": [mine, *HOOK["hooks"]]}
    text = json.dumps({"hooks": {"PreToolUse": [entry]}})
    remaining = settings_file.remove(text, "settings.json")
    assert json.loads(str(remaining)) == {
        "hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [mine]}]}
    }


@pytest.mark.parametrize(
    "text",
    ["", "nope", "[]", "{,}", '{"a" "b"}', '{"a":1}}', '{"a":"', '{"a":1', "{'a':1}", '{"a":1,,}'],
)
def test_a_file_that_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"settings\.json"):
        settings_file.add(text, ENTRIES, "settings.json")


@pytest.mark.parametrize("text", ['{"hooks":[]}', '{"hooks":{"Stop":{}}}', '{"hooks": null}'])
def test_hooks_of_another_shape_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"settings\.json"):
        settings_file.add(text, ENTRIES, "settings.json")
