"""Each secret rule matches texts of its own expression and tokens of services."""

from __future__ import annotations

import base64
import random
import re
import string
from collections.abc import Iterable
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

import pytest

from gitckpt.store import secrets
from gitckpt.store.secrets import load_token_rules

ANY = string.ascii_letters + string.digits
BASE64 = f"{ANY}+/"
CATEGORIES = {_constants.CATEGORY_DIGIT: string.digits, _constants.CATEGORY_WORD: f"{ANY}_"}


def generated(pattern: Iterable[tuple[Any, Any]], chance: random.Random) -> str:
    """Return a text that a parsed expression matches, without its lookaheads."""
    return "".join(_generated(operation, argument, chance) for operation, argument in pattern)


def _generated(operation: Any, argument: Any, chance: random.Random) -> str:
    if operation is _constants.LITERAL:
        return chr(argument)
    if operation is _constants.IN:
        return chance.choice("".join(_members(*member) for member in argument))
    if operation is _constants.MAX_REPEAT:
        least, most, inner = argument
        return "".join(
            generated(inner, chance) for _ in range(chance.randint(least, min(most, least + 40)))
        )
    if operation is _constants.SUBPATTERN:
        return generated(argument[-1], chance)
    if operation is _constants.BRANCH:
        return generated(chance.choice(argument[1]), chance)
    if operation is _constants.ASSERT and argument[0] < 0:
        return generated(argument[1], chance)
    assert operation in (_constants.AT, _constants.ASSERT, _constants.ASSERT_NOT), operation
    return ""


def _members(operation: Any, argument: Any) -> str:
    if operation is _constants.RANGE:
        return "".join(map(chr, range(argument[0], argument[1] + 1)))
    return CATEGORIES[argument] if operation is _constants.CATEGORY else chr(argument)


def assert_found(text: str, secret: str) -> None:
    data = text.encode()
    start = data.index(secret.encode())
    end = start + len(secret)
    hits = secrets.find_hits(data)
    assert any(hit.start <= start and end <= hit.end <= end + 1 for hit in hits), (text, hits)


AROUND = ("{}", 'key = "{}"', "TOKEN={}\n", r'{{"said": "it is\n{}\n"}}', "https://host/{}?a=b")


@pytest.mark.parametrize("rule", load_token_rules(), ids=[rule[0] for rule in load_token_rules()])
def test_what_an_expression_describes_is_found(rule: tuple[str, str, str, float]) -> None:
    chance = random.Random(rule[0])
    pattern = _parser.parse(rule[2])
    tokens = 0
    while tokens < 50:
        token = generated(pattern, chance)
        found = re.search(rule[2], token)
        if found is None or found.end() < len(token):
            continue  # lookaheads generate no text
        assert_found(AROUND[tokens % len(AROUND)].format(token), found[0])
        tokens += 1


def some(letters: str, size: int, chance: random.Random) -> str:
    return "".join(chance.choices(letters, k=size))


@pytest.mark.parametrize(
    "around",
    [
        "AWS_SECRET_ACCESS_KEY={}",
        "export AWS_SECRET_ACCESS_KEY='{}'",
        "aws_secret_access_key = {}",
        '"SecretAccessKey": "{}",',
        r"{{\"AWS_SECRET_ACCESS_KEY\": \"{}\"}}",
        "<SecretAccessKey>{}</SecretAccessKey>",
    ],
)
def test_secret_keys_of_aws_are_found(around: str) -> None:
    chance = random.Random(1)
    for _ in range(1000):
        key = some(BASE64, 40, chance)
        assert_found(around.format(key), key)


def login(name: str, password: str) -> str:
    return base64.b64encode(f"{name}:{password}".encode()).decode()


CHANCE = random.Random(2)
EXAMPLES = {
    "sk-ant-oat01-": f"CLAUDE_CODE_OAUTH_TOKEN=<sk-ant-oat01-{some(ANY + '_-', 93, CHANCE)}AA>",
    "sk-ant-ort01-": f'"refreshToken":"<sk-ant-ort01-{some(ANY + "_-", 93, CHANCE)}AA>"',
    "openai project": (
        f"OPENAI_API_KEY=<sk-proj-{some(ANY + '_-', 74, CHANCE)}T3BlbkFJ"
        f"{some(ANY + '_-', 73, CHANCE)}g>"
    ),
    "openai user": f"<sk-{some(ANY, 20, CHANCE)}T3BlbkFJ{some(ANY, 20, CHANCE)}>",
    "groq": f"<gsk_{some(ANY, 52, CHANCE)}>",
    "xai": f"<xai-{some(ANY, 80, CHANCE)}>",
    "openrouter": f"<sk-or-v1-{some('0123456789abcdef', 64, CHANCE)}>",
    "replicate": f"<r8_{some(ANY, 37, CHANCE)}>",
    "langsmith": (
        f"<lsv2_pt_{some('0123456789abcdef', 32, CHANCE)}_{some('0123456789abcdef', 10, CHANCE)}>"
    ),
    "supabase": f"<sbp_{some('0123456789abcdef', 40, CHANCE)}>",
    "google": f'"client_secret":"<GOCSPX-{some(ANY + "_-", 28, CHANCE)}>"',
    "telegram": f"bot.run('1234567890:<AA{some(ANY + '_-', 33, CHANCE)}>')",
    "telegram url": (
        f"https://api.telegram.org/bot987654321:<AA{some(ANY + '_-', 33, CHANCE)}>/getMe"
    ),
    "docker": f'{{"auths": {{"ghcr.io": {{"auth": "<{login("ann", "Tr0ub4dor")}>"}}}}}}',
    "docker over lines": f'"auth":\n\t\t\t"<{login("ann", "dckr_p")}>"',
    "npm": f"//registry.npmjs.org/:_auth=<{login('ann', 'mysecretpass')}>",
    "kube": f"    client-key-data: <{base64.b64encode(CHANCE.randbytes(1700)).decode()}>",
    "basic": f"curl -H 'Authorization: Basic <{login('ann', 'pqR5t')}>'",
    "basic in python": f'headers={{"Authorization": "Basic <{login("ann", "qR5t!w")}>"}}',
    "bearer": f"> authorization: Bearer <{some(ANY + '._-', 40, CHANCE)}>",
    "bearer in json": r"{\"Authorization\": \"Bearer " + f"<{some(ANY, 32, CHANCE)}>" + r"\"}",
    "netrc": "machine api.github.com login ann password <Tr0ub4dor>",
    "netrc over lines": "machine api.github.com\n  login ann\n  password <correct-horse>\n",
    "netrc default": "default login ann password <pass4711word>",
    "redis": "REDIS_URL=redis://:<Xk29vLq0tR>@cache.internal.org:6379/0",
    "session token": f"AWS_SESSION_TOKEN=<{some(BASE64, 700, CHANCE)}==>",
    "routable gitlab": f"<glpat-{some(ANY, 27, CHANCE)}.01.0z1234567>",
    "key cut off": "<-----BEGIN RSA PRIVATE KEY-----\n"
    f"{some(BASE64, 64, CHANCE)}\n{some(BASE64, 64, CHANCE)}>",
    "key in json": (
        rf'"private_key": "<-----BEGIN PRIVATE KEY-----\n{some(BASE64, 64, CHANCE)}\n'
        rf'-----END PRIVATE KEY----->\n"'
    ),
}


@pytest.mark.parametrize("service", EXAMPLES)
def test_what_services_hand_out_is_found(service: str) -> None:
    before, secret, after = re.fullmatch(
        r"([^<]*)<(.*)>(.*)", EXAMPLES[service], re.DOTALL
    ).groups()  # type: ignore[union-attr]
    assert_found(f"{before}{secret}{after}", secret)


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN PRIVATE KEY-----\n",
        'if line == b"-----BEGIN OPENSSH PRIVATE KEY-----":',
        "Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==",
        f"Authorization: Basic {login('user', 'password')}",
        "Authorization: Bearer $TOKEN",
        "Authorization: Bearer YOUR_ACCESS_TOKEN",
        'headers = {"Authorization": f"Bearer {token}"}',
        "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "machine HOST login NAME password PASSWORD",
        '"auth": "Zm9vYmFyYmF6cXV4"',
        "commit da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "s.thisIsTheNameOfAFunction(",
        "token_file = /etc/gitckpt/v2/tokens/3f7a",
    ],
)
def test_what_stands_in_documentation_is_none(text: str) -> None:
    assert secrets.find_hits(text.encode()) == []
