"""Rules for tokens that begin with letters of their own.

`GITLEAKS` follows `config/gitleaks.toml` of gitleaks, version 8.30.1 (commit b58d3f10). Changed
there: what ends a token, repeats without an end, expressions that match what is no token (40 hex
digits), and those that end within the token. `OTHERS` are services that gitleaks does not know; the
lengths are those of Nosey Parker 0.24 and Kingfisher 1.10, where these know them, with some room.

The license of gitleaks:

MIT License

Copyright (c) 2019 Zachary Rice

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files (the
"Software"), to deal in the Software without restriction, including without limitation the rights to use, copy, modify, merge, publish,
distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is furnished to do so, subject to the
following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF
MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY
CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE
SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""

from __future__ import annotations

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
RULES = GITLEAKS + OTHERS
"""Name, beginnings of the tokens in lower case, regular expression, and least entropy in bits for each character."""
