"""Find secrets in text and files, mask them, and remember which hits are settled.

Most rules search for a plain word first, then match an expression of bounded length after it.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import functools
import hashlib
import itertools
import math
import os
import re
import stat
import string
from collections import Counter

from gitckpt.git.files import premises
from gitckpt.model.arguments import quoted
from gitckpt.model.checkpoint import Suspect
from gitckpt.model.errors import CkptError, UsageError
from gitckpt.model.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gitckpt.git.repository import Repository
    from gitckpt.git.worktree.index import PrivateIndex

    Rule = tuple[bytes, str, str, float]

# Secrets by context: a name, a header, or the markers of a private key.

_KEY_HEADER = re.compile(rb"-----BEGIN[ A-Z0-9_-]{0,60}PRIVATE KEY(?: BLOCK)?-----")
_KEY_FOOTER = re.compile(rb"-----END[ A-Z0-9_-]{0,80}-----")
_KEY_BYTES = 20_000
_LINE = rb"(?:\\[nr]|[ \t\r\n]){1,20}(?:[A-Za-z-]{3,20}: [^\r\n\\]{1,80}|[A-Za-z0-9+/=]{20,200})"
_KEY_LINES = re.compile(rb"(?:%s){1,400}" % _LINE)

_IN_URL = re.compile(rb"://[^\s:/@\"'<>{}$]{0,100}:([^\s:/@\"'<>{}$*]{3,200})@[\w.-]{1,253}")
_NETRC = re.compile(
    rb"(?:machine[ \t\r\n]{1,20}[^\s]{1,255}|default)[ \t\r\n]{1,20}login[ \t\r\n]{1,20}[^\s]{1,255}"
    rb"[ \t\r\n]{1,20}password[ \t\r\n]{1,20}([^\s<>$\[\]{}*%\"'`\\]{3,255})"
)

_QUOTE = rb"\\{0,2}[\"'`]?"
_IS = rb"[ \t]{0,3}(?:=>|:=|=|:|,)[ \t]{0,3}" + _QUOTE
_ASSIGNED = re.compile(rb"[\w-]{0,24}" + _QUOTE + _IS + rb"(\w[\w.~+/-]{15,3999}={0,2})")
_AWS_KEY = re.compile(
    rb"(?i)[_-]?(?:access)?[_-]?key%s(?:>|%s)([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])" % (_QUOTE, _IS)
)  # fmt: skip
_CLIENT_KEY = re.compile(rb"-data" + _QUOTE + _IS + rb"([A-Za-z0-9+/]{40,20000}={0,2})")
_HEADER = re.compile(
    rb"(?i)authorization%s%s(?:(basic)|bearer|token)[ \t]{1,3}([\w.~+/=-]{8,4000})" % (_QUOTE, _IS)
)  # fmt: skip
_LOGIN = re.compile(rb"auth%s[ \t\r\n]{0,20}[:=][ \t\r\n]{0,20}%s" % (_QUOTE, _QUOTE) + rb"([A-Za-z0-9+/]{8,4000}={0,2})(?![\w+/=-])")
_NAMES = (b"passw", b"secret", b"token", b"credential", b"key")
_KEYS = tuple(name + dash for name in (b"api", b"access", b"auth", b"private") for dash in (b"", b"_", b"-"))

_NO_SECRET = re.compile(
    rb"(?i)example|sample|dummy|placeholder|change.?me|your[_-]|xxxx|0000|1234567|abcdef|test|fake"
    rb"|\.\.\.|pass|secret|localhost|tiger|127\.0\.0"
)
_PLACEHOLDER = re.compile(
    rb"(?i)(?:(?:my|your|the|some)[ _-]?)?"
    rb"(?:pass(?:word|wd|phrase)?|secret|token|key|test|open sesame|string)\d{0,4}|(.)\1*"
)
_EXAMPLE = re.compile(rb"(?i)example|placeholder|changeme|\.\.\.|xxxx")


def find(data: bytes, text: bytes) -> Iterator[tuple[str, int, int]]:
    r"""Yield rule, start and end of each likely secret, unordered.

    `text` is `data` with its escaped line breaks (`\n` in JSON) blanked.
    """
    if b"PRIVATE KEY" in data:
        yield from _private_keys(data)
    folded = text.lower()
    for at in _places(folded, b"://"):
        found = _IN_URL.match(text, at)
        if found is not None and not _NO_SECRET.search(found[0]):
            yield "password-in-url", *found.span(1)
    for word in (b"machine", b"default"):
        for at in _places(folded, word):
            found = _NETRC.match(text, at)
            if found is not None and not _is_placeholder(found[1]):
                yield "netrc-password", *found.span(1)
    for at in _places(folded, b"auth"):
        yield from _authorized(text, folded, at)
    for name in _NAMES:
        for at in _places(folded, name):
            yield from _assigned(text, folded, name, at)


def _places(text: bytes, word: bytes) -> Iterator[int]:
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + len(word))


def _private_keys(data: bytes) -> Iterator[tuple[str, int, int]]:
    """Yield private keys from header to footer; of a truncated key, the lines present."""
    for header in _KEY_HEADER.finditer(data):
        start = header.end()
        end = data.find(b"-----", start, start + _KEY_BYTES)
        footer = _KEY_FOOTER.match(data, end) if end >= start + 40 else None
        if footer is not None:
            yield "private-key", header.start(), footer.end()
        elif lines := _KEY_LINES.match(data, start, end if end >= 0 else start + _KEY_BYTES):
            yield "private-key", header.start(), lines.end()


def _authorized(text: bytes, folded: bytes, at: int) -> Iterator[tuple[str, int, int]]:
    """Yield values of `Authorization` headers and of `auth` in docker or npm files."""
    if folded.startswith(b"authorization", at):
        found = _HEADER.match(text, at)
        if found and (_is_login if found[1] else _is_bearer)(found[2]):
            yield "authorization-header", *found.span(2)
    elif folded[at + 4 : at + 5] in b"\"'\\ =:":
        found = _LOGIN.match(folded, at)
        if found is not None and _is_login(text[found.start(1) : found.end(1)]):
            yield "registry-auth", *found.span(1)


def _assigned(text: bytes, folded: bytes, name: bytes, at: int) -> Iterator[tuple[str, int, int]]:
    end = at + len(name)
    if name == b"key" and not folded.endswith(_KEYS, 0, at):
        if folded.endswith(b"client-", 0, at) and (found := _CLIENT_KEY.match(text, end)):
            yield "kubernetes-client-key", *found.span(1)
        return
    if name == b"secret" and (found := _AWS_KEY.match(text, end)):
        if b"EXAMPLE" not in found[1] and entropy_of(found[1]) >= 3.5:
            yield "aws-secret-access-key", *found.span(1)
    elif (found := _ASSIGNED.match(text, end)) and _looks_random(found[1]):
        yield "assigned-secret", *found.span(1)


def _looks_random(value: bytes, least: float = 3.6) -> bool:
    digits = sum(48 <= byte < 58 for byte in value)
    return 2 <= digits < len(value) and entropy_of(value) >= least and not _NO_SECRET.search(value)


def _is_bearer(value: bytes) -> bool:
    return len(value) >= 16 and _looks_random(value, 3.0)


def _is_login(value: bytes) -> bool:
    """Return whether a value is base64 of `name:password`."""
    try:
        name, colon, password = base64.b64decode(value + b"=" * (-len(value) % 4)).partition(b":")
    except binascii.Error:
        return False
    return bool(colon and name and len(password) >= 3 and password.isascii() and not _is_placeholder(password))


def _is_placeholder(password: bytes) -> bool:
    return bool(_PLACEHOLDER.fullmatch(password) or _EXAMPLE.search(password))


def entropy_of(text: bytes) -> float:
    """Return the entropy of a text in bits per byte."""
    shares = [count / len(text) for count in Counter(text).values()]
    return -sum(share * math.log2(share) for share in shares)


# Rules for tokens with a fixed prefix. GITLEAKS: from gitleaks 8.30.1 (MIT); see docs/design.md.

GITLEAKS = (
    (
        "1password-secret-key",
        "a3-",
        r"\bA3-[A-Z0-9]{6}-(?:(?:[A-Z0-9]{11})|(?:[A-Z0-9]{6}-[A-Z0-9]{5}))-[A-Z0-9]{5}-[A-Z0-9]{5}-[A-Z0-9]{5}\b",
        3.8,
    ),
    ("1password-service-account-token", "ops_", r"ops_eyJ[a-zA-Z0-9+/]{250,4000}={0,3}", 4.0),
    ("adobe-client-secret", "p8e-", r"\b(p8e-(?i:[a-z0-9]{32}))(?![\w-])", 2.0),
    ("age-secret-key", "age-secret-key-1", r"AGE-SECRET-KEY-1[QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L]{58}", 0.0),
    ("airtable-personnal-access-token", "pat", r"\b(pat[a-zA-Z0-9]{14}\.[a-f0-9]{64})\b", 0.0),
    ("alibaba-access-key-id", "ltai", r"\b(LTAI(?i:[a-z0-9]{20}))(?![\w-])", 2.0),
    ("anthropic-admin-api-key", "sk-ant-admin01", r"\b(sk-ant-admin01-[a-zA-Z0-9_\-]{93}AA)(?![\w-])", 0.0),
    ("anthropic-api-key", "sk-ant-api03", r"\b(sk-ant-api03-[a-zA-Z0-9_\-]{93}AA)(?![\w-])", 0.0),
    ("artifactory-api-key", "akcp", r"\bAKCp[A-Za-z0-9]{69}\b", 4.5),
    ("artifactory-reference-token", "cmvmd", r"\bcmVmd[A-Za-z0-9]{59}\b", 4.5),
    ("atlassian-api-token", "atatt3", r"\b(ATATT3[A-Za-z0-9_\-=]{186})(?![\w-])", 3.5),
    (
        "authress-service-client-access-key",
        "sc_ ext_ scauth_ authress_",
        r"\b((?:sc|ext|scauth|authress)_(?i:[a-z0-9]{5,30}\.[a-z0-9]{4,6}\.(?-i:acc)[_-][a-z0-9-]{10,32}\.[a-z0-9+/_=-]{30,120}))(?![\w-])",
        2.0,
    ),
    ("aws-access-token", "a3t akia asia abia acca", r"\b((?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16})\b", 3.0),
    ("aws-amazon-bedrock-api-key-long-lived", "absk", r"\b(ABSK[A-Za-z0-9+/]{109,269}={0,2})(?![\w-])", 3.0),
    (
        "aws-amazon-bedrock-api-key-short-lived",
        "bedrock-api-key-",
        r"bedrock-api-key-YmVkcm9jay5hbWF6b25hd3MuY29t[A-Za-z0-9+/_-]{0,4000}",
        3.0,
    ),
    ("clickhouse-cloud-api-secret-key", "4b1d", r"\b(4b1d[A-Za-z0-9]{38})\b", 3.0),
    ("clojars-api-token", "clojars_", r"(?i)CLOJARS_[a-z0-9]{60}", 2.0),
    ("cloudflare-origin-ca-key", "v1.0-", r"\b(v1\.0-[a-f0-9]{24}-[a-f0-9]{146})(?![\w-])", 2.0),
    ("databricks-api-token", "dapi", r"\b(dapi[a-f0-9]{32}(?:-\d)?)(?![\w-])", 3.0),
    ("digitalocean-access-token", "doo_v1_", r"\b(doo_v1_[a-f0-9]{64})(?![\w-])", 3.0),
    ("digitalocean-pat", "dop_v1_", r"\b(dop_v1_[a-f0-9]{64})(?![\w-])", 3.0),
    ("digitalocean-refresh-token", "dor_v1_", r"(?i)\b(dor_v1_[a-f0-9]{64})(?![\w-])", 0.0),
    ("doppler-api-token", "dp.pt.", r"dp\.pt\.(?i:[a-z0-9]{43})", 2.0),
    ("duffel-api-token", "duffel_", r"duffel_(?:test|live)_(?i:[a-z0-9_\-=]{43})", 2.0),
    ("dynatrace-api-token", "dt0c01.", r"dt0c01\.(?i:[a-z0-9]{24}\.[a-z0-9]{64})", 4.0),
    ("easypost-api-token", "ezak", r"\bEZAK(?i:[a-z0-9]{54}\b)", 2.0),
    ("easypost-test-api-token", "eztk", r"\bEZTK(?i:[a-z0-9]{54}\b)", 2.0),
    (
        "facebook-page-access-token",
        "eaam eaac",
        r"\b(EAA[MC](?i:[a-z0-9]{100,4000}))(?![\w-])",
        4.0,
    ),
    ("flutterwave-encryption-key", "flwseck_test", r"FLWSECK_TEST-(?i:[a-h0-9]{12})", 2.0),
    ("flutterwave-secret-key", "flwseck_test", r"FLWSECK_TEST-(?i:[a-h0-9]{32}-X)", 2.0),
    (
        "flyio-access-token",
        "fo1_ fm1 fm2_",
        r"\b((?:fo1_[\w-]{43}|fm1[ar]_[a-zA-Z0-9+\/]{100,4000}={0,3}|fm2_[a-zA-Z0-9+\/]{100,4000}={0,3}))(?![\w-])",
        4.0,
    ),
    ("frameio-api-token", "fio-u-", r"fio-u-(?i:[a-z0-9\-_=]{64})", 0.0),
    ("gcp-api-key", "aiza", r"\b(AIza[\w-]{35})(?![\w-])", 4.0),
    ("github-app-token", "ghu_ ghs_", r"(?:ghu|ghs)_[0-9a-zA-Z]{36}", 3.0),
    ("github-fine-grained-pat", "github_pat_", r"github_pat_\w{82}", 3.0),
    ("github-oauth", "gho_", r"gho_[0-9a-zA-Z]{36}", 3.0),
    ("github-pat", "ghp_", r"ghp_[0-9a-zA-Z]{36}", 3.0),
    ("github-refresh-token", "ghr_", r"ghr_[0-9a-zA-Z]{36}", 3.0),
    ("gitlab-cicd-job-token", "glcbt-", r"glcbt-[0-9a-zA-Z]{1,5}_[0-9a-zA-Z_-]{20}", 3.0),
    ("gitlab-deploy-token", "gldt-", r"gldt-[0-9a-zA-Z_\-]{20}", 3.0),
    ("gitlab-feature-flag-client-token", "glffct-", r"glffct-[0-9a-zA-Z_\-]{20}", 3.0),
    ("gitlab-feed-token", "glft-", r"glft-[0-9a-zA-Z_\-]{20}", 3.0),
    ("gitlab-incoming-mail-token", "glimt-", r"glimt-[0-9a-zA-Z_\-]{25}", 3.0),
    ("gitlab-kubernetes-agent-token", "glagent-", r"glagent-[0-9a-zA-Z_\-]{50}", 3.0),
    ("gitlab-oauth-app-secret", "gloas-", r"gloas-[0-9a-zA-Z_\-]{64}", 3.0),
    ("gitlab-pat", "glpat-", r"glpat-[\w-]{20}", 3.0),
    ("gitlab-pat-routable", "glpat-", r"\bglpat-[0-9a-zA-Z_-]{27,300}(?:\.[0-9a-z]{2})?\.[0-9a-z]{9}\b", 4.0),
    ("gitlab-ptt", "glptt-", r"glptt-[0-9a-f]{40}", 3.0),
    ("gitlab-rrt", "gr1348941", r"GR1348941[\w-]{20}", 3.0),
    ("gitlab-runner-authentication-token", "glrt-", r"glrt-[0-9a-zA-Z_\-]{20}", 3.0),
    ("gitlab-runner-authentication-token-routable", "glrt-", r"\bglrt-t\d_[0-9a-zA-Z_\-]{27,300}(?:\.[0-9a-z]{2})?\.[0-9a-z]{9}\b", 4.0),
    ("gitlab-scim-token", "glsoat-", r"glsoat-[0-9a-zA-Z_\-]{20}", 3.0),
    ("grafana-api-key", "eyjrijoi", r"(?i)\b(eyJrIjoi[A-Za-z0-9]{70,400}={0,3})(?![\w-])", 3.0),
    ("grafana-cloud-api-token", "glc_", r"(?i)\b(glc_[A-Za-z0-9+/]{32,400}={0,3})(?![\w-])", 3.0),
    ("grafana-service-account-token", "glsa_", r"(?i)\b(glsa_[A-Za-z0-9]{32}_[A-Fa-f0-9]{8})(?![\w-])", 3.0),
    ("harness-api-key", "pat. sat.", r"(?:pat|sat)\.[a-zA-Z0-9_-]{22}\.[a-zA-Z0-9]{24}\.[a-zA-Z0-9]{20}", 0.0),
    ("heroku-api-key-v2", "hrku-aa", r"\b((HRKU-AA[0-9a-zA-Z_-]{58}))(?![\w-])", 4.0),
    ("huggingface-access-token", "hf_", r"\b(hf_(?i:[a-z]{34}))(?![\w-])", 2.0),
    ("huggingface-organization-api-token", "api_org_", r"\b(api_org_(?i:[a-z]{34}))(?![\w-])", 2.0),
    ("infracost-api-token", "ico-", r"\b(ico-[a-zA-Z0-9]{32})(?![\w-])", 3.0),
    ("intra42-client-secret", "s-s4t2ud- s-s4t2af-", r"\b(s-s4t2(?:ud|af)-(?i:[abcdef0123456789]{64}))(?![\w-])", 3.0),
    (
        "jwt",
        "ey",
        r"\b(ey[a-zA-Z0-9]{17,4000}\.ey[a-zA-Z0-9\/_-]{17,8000}\.(?:[a-zA-Z0-9\/_-]{10,4000}={0,2})?)(?![\w-])",
        3.0,
    ),
    ("linear-api-key", "lin_api_", r"lin_api_(?i:[a-z0-9]{40})", 2.0),
    ("new-relic-user-api-key", "nrak-", r"(?i)\b(NRAK-[a-z0-9]{27})(?![\w-])", 3.0),
    ("notion-api-token", "ntn_", r"\b(ntn_[0-9]{11}[A-Za-z0-9]{32}[A-Za-z0-9]{3})(?![\w-])", 4.0),
    ("npm-access-token", "npm_", r"(?i)\b(npm_[a-z0-9]{36})(?![\w-])", 2.0),
    ("octopus-deploy-api-key", "api-", r"\b(API-[A-Z0-9]{26})(?![\w-])", 3.0),
    (
        "openai-api-key",
        "sk-",
        r"\b(sk-(?:(?:proj|svcacct|admin)-[A-Za-z0-9_-]{20,100}|[a-zA-Z0-9]{20})T3BlbkFJ[A-Za-z0-9_-]{20,100})(?![\w-])",
        3.0,
    ),
    ("openshift-user-token", "sha256~", r"\b(sha256~[\w-]{43})(?![\w-])", 3.5),
    ("perplexity-api-key", "pplx-", r"\b(pplx-[a-zA-Z0-9]{48})\b", 4.0),
    ("planetscale-api-token", "pscale_tkn_", r"\b(pscale_tkn_(?i:[\w=\.-]{32,64}))(?![\w-])", 3.0),
    ("planetscale-oauth-token", "pscale_oauth_", r"\b(pscale_oauth_[\w=\.-]{32,64})(?![\w-])", 3.0),
    ("planetscale-password", "pscale_pw_", r"(?i)\b(pscale_pw_(?i:[\w=\.-]{32,64}))(?![\w-])", 3.0),
    ("postman-api-token", "pmak-", r"\b(PMAK-(?i:[a-f0-9]{24}\-[a-f0-9]{34}))(?![\w-])", 3.0),
    ("prefect-api-token", "pnu_", r"\b(pnu_[a-zA-Z0-9]{36})(?![\w-])", 2.0),
    ("pulumi-api-token", "pul-", r"\b(pul-[a-f0-9]{40})(?![\w-])", 2.0),
    ("pypi-upload-token", "pypi-ageichlwas5vcmc", r"pypi-AgEIcHlwaS5vcmc[\w-]{50,1000}", 3.0),
    ("readme-api-token", "rdme_", r"\b(rdme_[a-z0-9]{70})(?![\w-])", 2.0),
    ("rubygems-api-token", "rubygems_", r"\b(rubygems_[a-f0-9]{48})(?![\w-])", 2.0),
    ("scalingo-api-token", "tk-us-", r"\b(tk-us-[\w-]{48})(?![\w-])", 2.0),
    ("sendgrid-api-token", "sg.", r"\b(SG\.(?i:[a-z0-9=_\-\.]{66}))(?![\w-])", 2.0),
    ("sendinblue-api-token", "xkeysib-", r"\b(xkeysib-[a-f0-9]{64}\-(?i:[a-z0-9]{16}))(?![\w-])", 2.0),
    (
        "sentry-org-token",
        "sntrys_eyjpyxqio",
        (
            r"\bsntrys_eyJpYXQiO[a-zA-Z0-9+/]{10,200}(?:LCJyZWdpb25fdXJs|InJlZ2lvbl91cmwi|cmVnaW9uX3VybCI6)"
            r"[a-zA-Z0-9+/]{10,200}={0,2}_[a-zA-Z0-9+/]{43}(?![a-zA-Z0-9+/])"
        ),
        4.5,
    ),
    ("sentry-user-token", "sntryu_", r"\b(sntryu_[a-f0-9]{64})(?![\w-])", 3.5),
    ("settlemint-application-access-token", "sm_aat", r"\b(sm_aat_[a-zA-Z0-9]{16})(?![\w-])", 3.0),
    ("settlemint-personal-access-token", "sm_pat", r"\b(sm_pat_[a-zA-Z0-9]{16})(?![\w-])", 3.0),
    ("settlemint-service-access-token", "sm_sat", r"\b(sm_sat_[a-zA-Z0-9]{16})(?![\w-])", 3.0),
    ("shippo-api-token", "shippo_", r"\b(shippo_(?:live|test)_[a-fA-F0-9]{40})(?![\w-])", 2.0),
    ("shopify-access-token", "shpat_", r"shpat_[a-fA-F0-9]{32}", 2.0),
    ("shopify-custom-access-token", "shpca_", r"shpca_[a-fA-F0-9]{32}", 2.0),
    ("shopify-private-app-access-token", "shppa_", r"shppa_[a-fA-F0-9]{32}", 2.0),
    ("shopify-shared-secret", "shpss_", r"shpss_[a-fA-F0-9]{32}", 2.0),
    ("slack-app-token", "xapp", r"(?i)xapp-\d-[A-Z0-9]{1,40}-\d{1,40}-[a-z0-9]{1,200}", 2.0),
    ("slack-bot-token", "xoxb", r"xoxb-[0-9]{10,13}-[0-9]{10,13}[a-zA-Z0-9-]{0,200}", 3.0),
    ("slack-config-access-token", "xoxe.xoxb- xoxe.xoxp-", r"(?i)xoxe\.xox[bp]-\d-[A-Z0-9]{163,166}", 2.0),
    ("slack-config-refresh-token", "xoxe-", r"(?i)xoxe-\d-[A-Z0-9]{146}", 2.0),
    ("slack-legacy-bot-token", "xoxb", r"xoxb-[0-9]{8,14}-[a-zA-Z0-9]{18,26}", 2.0),
    (
        "slack-legacy-token",
        "xoxo xoxs",
        r"xox[os]-\d{1,40}-\d{1,40}-\d{1,40}-[a-fA-F\d]{1,200}",
        2.0,
    ),
    ("slack-legacy-workspace-token", "xoxa xoxr", r"xox[ar]-(?:\d-)?[0-9a-zA-Z]{8,48}", 2.0),
    ("slack-user-token", "xoxp- xoxe-", r"xox[pe](?:-[0-9]{10,13}){3}-[a-zA-Z0-9-]{28,34}", 2.0),
    (
        "slack-webhook-url",
        "hooks.slack.com",
        r"hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9+/]{43,56}",
        0.0,
    ),
    (
        "sourcegraph-access-token",
        "sgp_",
        r"(?i)\b(sgp_(?:(?:[a-fA-F0-9]{16}|local)_)?[a-fA-F0-9]{40})(?![\w-])",
        3.0,
    ),
    ("square-access-token", "sq0atp- eaaa", r"\b((?:EAAA|sq0atp-)[\w-]{22,60})(?![\w-])", 2.0),
    (
        "stripe-access-token",
        "sk_test sk_live sk_prod rk_test rk_live rk_prod",
        r"\b((?:sk|rk)_(?:test|live|prod)_[a-zA-Z0-9]{10,99})(?![\w-])",
        2.0,
    ),
    ("twilio-api-key", "sk", r"SK[0-9a-fA-F]{32}", 3.0),
    ("typeform-api-token", "tfp_", r"(?i)\b(tfp_[a-z0-9\-_\.=]{59})(?![\w-])", 3.0),
    ("vault-batch-token", "hvb.", r"\b(hvb\.[\w-]{138,300})(?![\w-])", 4.0),
    (
        "vault-service-token",
        "hvs. s.",
        r"\b((?:hvs\.[\w-]{90,120}|s\.(?=[a-zA-Z]*\d)(?i:[a-z0-9]{24})))(?![\w-])",
        3.5,
    ),
)
OTHERS = (
    (
        "anthropic-oauth-token",
        "sk-ant-",
        r"\b(sk-ant-(?:oat|ort|sid)\d\d-[\w-]{60,200})(?![\w-])",
        3.0,
    ),
    ("docker-access-token", "dckr_", r"\b(dckr_[op]at_[\w-]{27,60})(?![\w-])", 3.0),
    ("google-oauth-access-token", "ya29.", r"\b(ya29\.[\w.-]{20,2000})(?![\w-])", 3.0),
    ("google-oauth-client-secret", "gocspx-", r"\b(GOCSPX-[\w-]{28})(?![\w-])", 3.0),
    ("groq-api-key", "gsk_", r"\b(gsk_[a-zA-Z0-9]{48,60})(?![\w-])", 3.0),
    ("langsmith-api-key", "lsv2_", r"\b(lsv2_(?:pt|sk)_[a-f0-9]{32}_[a-f0-9]{10})(?![\w-])", 3.0),
    ("openrouter-api-key", "sk-or-v1-", r"\b(sk-or-v1-[a-f0-9]{64})(?![\w-])", 3.0),
    ("replicate-api-token", "r8_", r"\b(r8_[\w-]{37,40})(?![\w-])", 3.0),
    (
        "supabase-access-token",
        "sbp_ sb_secret_",
        r"\b(sbp_(?:oauth_)?[a-z0-9]{40}|sb_secret_[\w-]{22,60})(?![\w-])",
        3.0,
    ),
    ("telegram-bot-api-token", "aa", r"(?<=[0-9]{8}:)AA[\w-]{32,33}(?![\w-])", 3.0),
    ("xai-api-key", "xai-", r"\b(xai-[\w-]{64,100})(?![\w-])", 3.0),
)
# Name, prefixes in lower case, regular expression, least entropy in bits per character.
RULES = GITLEAKS + OTHERS


# The detector, fast enough to run at each save.

# Files of more bytes are skipped: files that people write are smaller.
LARGEST = 1_000_000

# Start of the replacement of a secret.
MASK = b"[masked: "

_BINARY = 8000
# Bytes of the shortest token.
_LEAST = 12

_PUNCTUATION = b".~-"
_WORDS = frozenset(string.ascii_letters.encode() + string.digits.encode() + b"_/+=" + _PUNCTUATION)
# Translation table: bytes that are not part of a word become spaces.
_SPACED = bytes(byte if byte in _WORDS else 32 for byte in range(256))

# Where a token can start within a word.
_INNER = re.compile(rb"[/+=][.~-]{0,10}([A-Za-z0-9][\w.-])")

# Bytes of the longest prefix.
_LONGEST = 30

_ESCAPED = re.compile(rb"\\[nrt]")


@dataclass(frozen=True, slots=True)
class Hit:
    """A likely secret: the rule that matched, and its start and end in bytes."""

    rule: str
    start: int
    end: int


@functools.cache
def _by_beginning() -> dict[bytes, list[Rule]]:
    """Return the rules by the first two characters of their prefixes, in either case."""
    found: dict[bytes, list[Rule]] = {}
    for name, beginnings, expression, entropy in RULES:
        for beginning in beginnings.encode().split():
            first, second = (set(character) for character in zip(beginning[:2], beginning[:2].upper(), strict=True))
            for pair in itertools.product(first, second):
                found.setdefault(bytes(pair), []).append((beginning, name, expression, entropy))
    return found


@functools.cache
def _compiled(expression: str) -> re.Pattern[bytes]:
    return re.compile(expression.encode())


def find_detector(data: bytes) -> list[Hit]:
    """Return likely secrets in order, without overlaps."""
    found = sorted(_all(data), key=lambda hit: (hit.start, -hit.end))
    kept: list[Hit] = []
    for hit in found:
        if not kept or hit.start >= kept[-1].end:
            kept.append(hit)
    return kept


def _all(data: bytes) -> Iterator[Hit]:
    # "\\nghp_…" in JSON: the "n" belongs to the line break, not to the token.
    text = _ESCAPED.sub(b"  ", data) if b"\\" in data else data
    rules = _by_beginning()
    end = 0
    for start, candidates in sorted(_beginnings(text, rules), key=lambda place: place[0]):
        token = _token(text, start, candidates) if start >= end else None
        if token is not None:
            yield token
            end = token.end
    for found in find(data, text):
        yield Hit(*found)


def _beginnings(text: bytes, rules: dict[bytes, list[Rule]]) -> Iterator[tuple[int, list[Rule]]]:
    """Yield where tokens may start, with the rules to try, unordered."""
    end = 0
    # Splitting the text takes half the time of a regular expression for words.
    for whole in [word for word in text.translate(_SPACED).split() if len(word) >= _LEAST]:
        if whole[:2] in rules:
            word = whole
        elif whole[0] in _PUNCTUATION:
            word = whole.lstrip(_PUNCTUATION)
        else:
            continue
        if candidates := _candidates(word, rules):
            while True:
                start = text.find(whole, end)
                end = start + len(whole)
                if (start == 0 or text[start - 1] not in _WORDS) and (end == len(text) or text[end] not in _WORDS):
                    break
            yield end - len(word), candidates
    for part in _INNER.finditer(text):
        if part[1] in rules:
            start = part.start(1)
            if candidates := _candidates(text[start : start + _LONGEST], rules):
                yield start, candidates


def _candidates(word: bytes, rules: dict[bytes, list[Rule]]) -> list[Rule]:
    return [rule for rule in rules.get(word[:2], ()) if word[: len(rule[0])].lower() == rule[0]]


def _token(text: bytes, start: int, candidates: list[Rule]) -> Hit | None:
    longest = None
    for _, name, expression, entropy in candidates:
        found = _compiled(expression).match(text, start)
        if found is None or entropy_of(found[0]) < entropy or found[0].endswith(b"EXAMPLE"):
            continue
        if longest is None or found.end() > longest.end:
            longest = Hit(name, *found.span())
    return longest


def lines(data: bytes) -> list[tuple[Hit, int, bytes]]:
    """Return the hits in a file, each with its line number and bytes; [] if binary."""
    if b"\0" in data[:_BINARY]:
        return []
    found, line, at = [], 1, 0
    for hit in find_detector(data):
        line += data.count(b"\n", at, hit.start)
        at = hit.start
        found.append((hit, line, data[hit.start : hit.end]))
    return found


def masked(text: str) -> str:
    """Replace each likely secret in a text by `[masked: RULE]`."""
    return masked_bytes(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")


def masked_bytes(data: bytes) -> bytes:
    return without(data, find_detector(data))


def without(data: bytes, hits: Sequence[Hit]) -> bytes:
    if not hits:
        return data
    parts, at = [], 0
    for hit in hits:
        parts += [data[at : hit.start], MASK + f"{hit.rule}]".encode()]
        at = hit.end
    return b"".join([*parts, data[at:]])


# Hits that a user has settled as no secrets, by path or digest.

FILE, KEY = "settled-secrets", "secret-key"
_DIGEST_BYTES = 8
_PATH, _DIGEST = b"path ", b"digest "


class Settled:
    """The settled hits of a repository, shared by its worktrees."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._lines: frozenset[bytes] | None = None
        self._key: bytes | None = None

    def digest(self, secret: bytes) -> str:
        """Return the 16 hex digits that documents hold in place of a secret.

        The hash is keyed with a private key of this clone, so that a short password cannot be
        guessed from a pushed document. A clone that loses its private directory has to settle its
        hits again. If the key cannot be stored, each process uses its own.
        """
        if self._key is None:
            self._key = self._read_key()
        return hashlib.blake2b(secret, key=self._key, digest_size=_DIGEST_BYTES).hexdigest()

    def knows(self, path: str, digest: str) -> bool:
        lines = self._read()
        return _DIGEST + digest.encode() in lines or _PATH + _escaped(path) in lines

    def settle(self, what: str) -> bool:
        """Settle a file, or one secret in any file; return whether it is new.

        `what` is a digest of 16 hex digits, or a path relative to the top of the worktree.
        """
        if not what:
            raise UsageError("nothing is named", hint="name a path or a digest; git ckpt show says which")
        line = _DIGEST + what.encode() if is_digest(what) else _PATH + _escaped(what)
        if line in self._read():
            return False
        path = os.path.join(self._repository.make_private_dir(), FILE)
        try:
            with open(path, "ab", opener=premises.create) as file:
                file.write(line + b"\n")
        except OSError as error:
            raise CkptError(f"cannot write {path}: {error.strerror}") from None
        self._lines = None
        return True

    def _read(self) -> frozenset[bytes]:
        if self._lines is None:
            try:
                with open(os.path.join(self._repository.private_dir, FILE), "rb", opener=premises.create) as file:
                    self._lines = frozenset(file.read().split(b"\n"))
            except OSError:
                self._lines = frozenset()
        return self._lines

    def _read_key(self) -> bytes:
        path = os.path.join(self._repository.make_private_dir(), KEY)
        try:
            if os.path.lexists(path) and os.lstat(path).st_size == 0:
                os.unlink(path)  # emptied by a power cut; without a key, passwords could be guessed
            if not os.path.lexists(path):
                scratch = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"
                try:
                    with open(scratch, "xb", opener=premises.create) as file:
                        file.write(os.urandom(32))
                        file.flush()
                        os.fsync(file.fileno())
                    os.link(scratch, path)  # atomic: concurrent processes get the same key
                except FileExistsError:
                    pass
                finally:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(scratch)
            with open(path, "rb", opener=premises.create) as file:
                return file.read(64)
        except OSError:
            return os.urandom(32)  # a checkpoint is still possible; such a digest cannot be settled


def is_digest(text: str) -> bool:
    return len(text) == 2 * _DIGEST_BYTES and not text.strip("0123456789abcdef")


def _escaped(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape").replace(b"\\", b"\\\\").replace(b"\n", b"\\n")


# Masked copies of the input files of a run.


def unsettled(repository: Repository, data: bytes) -> list[tuple[Hit, int, str]]:
    """Return the unsettled hits of a file, each with line and digest; [] if binary."""
    hits = lines(data)
    if not hits:
        return []
    settled = Settled(repository)
    found = [(hit, line, settled.digest(secret)) for hit, line, secret in hits]
    return [each for each in found if not settled.knows("", each[2])]


def masked_copies(repository: Repository, data: bytes) -> bytes:
    """Mask the unsettled hits of a file."""
    return without(data, [hit for hit, *_ in unsettled(repository, data)])


def has_masks(data: bytes) -> bool:
    return MASK in data


# Suspects in the files of a snapshot.

# Most suspects per snapshot: a dump can contain any number.
MOST = 1000


def look(index: PrivateIndex, files: str, paths: Sequence[bytes], stored: Mapping[bytes, bytes] | None = None) -> tuple[Suspect, ...]:
    """Return the unsettled hits in captured files, ordered by path and line.

    Files that are not regular, larger than `LARGEST`, or binary are skipped.

    Args:
        files: the tree of all files, as `index` lists them.
        paths: of the files to search, relative to the top of the worktree.
        stored: content of each of these that is a regular file; None to read it.
    """
    settled = None
    found = []
    for path, content in _read(index, files, paths) if stored is None else ((path, stored.get(path, b"")) for path in paths):
        if len(content) > LARGEST:
            continue
        for hit, line, secret in lines(content):
            if settled is None:
                settled = Settled(index.repository)
            digest = settled.digest(secret)
            if not settled.knows(quoted(path), digest):
                found.append(Suspect(quoted(path), hit.rule, line, digest))
    return tuple(sorted(found, key=lambda suspect: (suspect.path, suspect.line))[:MOST])


def unsettled_suspects(repository: Repository, path: bytes, places: Sequence[tuple[str, int, bytes]]) -> list[Suspect]:
    """Return the unsettled hits of one file, from rule, line and bytes of each hit."""
    settled = Settled(repository)
    name = quoted(path)
    found = [Suspect(name, rule, line, settled.digest(secret)) for rule, line, secret in places[:MOST]]
    return [suspect for suspect in found if not settled.knows(name, suspect.digest)]


def _read(index: PrivateIndex, files: str, paths: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    top = os.fsencode(index.repository.worktree or "")
    small = [path for path in paths if _is_small(os.path.join(top, path))]
    return zip(small, _contents(index, files, small), strict=True)


def _is_small(path: bytes) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and 0 < status.st_size <= LARGEST


def _contents(index: PrivateIndex, files: str, paths: Sequence[bytes]) -> Iterator[bytes]:
    odd = {path for path in paths if b"\n" in path}  # cat-file takes one name per line
    oids = {path: oid for path, _, oid, _, _ in index.entries() if path in odd} if odd else {}
    names = [oids.get(path) or f"{files}:{os.fsdecode(path)}" for path in paths]
    for stored in index.repository.cat_file.contents(names, LARGEST) if names else ():
        yield stored[2] if stored is not None else b""
