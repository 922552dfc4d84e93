"""Which names hide a value: all that hold secrets, and none of those that only sound like it."""

from __future__ import annotations

import pytest

from fleetstop.core import redact
from fleetstop.core.secret_names import may_hold_secrets

SECRET = """
MYPASS DB_PASS DBPASS PGPASS SSHPASS mypass PASS MY_PASS_2 PASSWORD PASSWORD_OLD ROOTPW DB_PW
PASSCODE JWT JWT_SECRET JWT_TOKEN AUTH_JWT PIN CARD_PIN PIN_CODE AUTH OAUTH AUTH_HEADER
HTTP_AUTH BASIC_AUTH BEARER BEARER_TOKEN CRED CREDS DB_CREDS MYCREDS CREDENTIALS SESSION_ID
APP_SESSION SESSION_KEY SESSION_COOKIE SESSION_SECRET COOKIE COOKIES AUTH_COOKIE PRIVATE
SSH_PRIVATE PRIVATE_KEY DSN SENTRY_DSN DATABASE_DSN WEBHOOK SLACK_WEBHOOK SLACK_WEBHOOK_URL
DISCORD_WEBHOOK_URL TOKEN HF_TOKEN HFTOKEN TOKEN2 API_TOKENS WANDB_API_KEY OPENAI_APIKEY
ACCESSKEY SSH_KEY KEY KEYS PSK OTP TOTP SALT HMAC MNEMONIC PAT GITHUB_PAT MYSQL_PWD USERPWD
SECRET CLIENT_SECRET_PROD
""".split()
HARMLESS = """
PATH PASSES NUM_PASSES PASS_RATE PASSTHROUGH BYPASS COMPASS COMPASS_DIR ENCOMPASS FIRST_PASS
PINNED PIN_MEMORY PINNING SPINNER SHIPPING I_MPI_PIN CPU_PIN OMP_PIN AUTHOR AUTHORS
GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL TOKENIZERS_PARALLELISM TOKENIZER EOS_TOKEN PAD_TOKEN SESSION
SESSIONS XDG_SESSION_ID XDG_SESSION_TYPE DESKTOP_SESSION TMUX_SESSION SESSION_MANAGER
SESSION_NAME DBUS_SESSION_BUS_ADDRESS CREDIT CREDITS ACCREDITED COOKIECUTTER COOKIE_DOMAIN
PRIVATE_IP PRIVATEER PATTERN PATCH PATIENCE DSNAME WEBHOOK_PORT MONKEY HOTKEY KEYBOARD KEYWORDS
MONKEYPATCH TURKEY BEARERS JWT_ALGORITHM AUTH_URL SALTY SECTION PWD OLDPWD LANG
CUDA_VISIBLE_DEVICES MASTER_ADDR
""".split()


@pytest.mark.parametrize("name", SECRET)
def test_a_name_that_hides_its_value(name: str) -> None:
    assert redact.secret(name, "hunter2hunter3")
    told = f"export {name}=hunter2hunter3"
    if name.isupper():
        assert "hunter2" not in redact.text(told)
    assert "hunter2" not in redact.command(["env", f"{name}=hunter2hunter3", "python3"])


@pytest.mark.parametrize("name", HARMLESS)
def test_a_name_that_only_sounds_like_it(name: str) -> None:
    assert not redact.secret(name, "adamw")
    assert redact.text(f"{name}=adamw") == f"{name}=adamw"
    assert redact.command(["env", f"{name}=adamw"]) == f"env {name}=adamw"


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("PIN", "4711", True),
        ("PIN", "off", False),
        ("MAX_TOKENS", "4096", False),
        ("NUM_TOKENS", "2048", False),
        ("USE_AUTH", "1", False),
        ("DISABLE_AUTH", "true", False),
        ("PASS", "3", False),
        ("SESSION", "train", False),
        ("SESSION", "s3ssi0nabcdef99", True),
        ("eos_token", "</s>", False),
        ("mask_token", "[MASK]", False),
        ("DATABASE_URL", "postgres://me:hunter2@db/x", True),
        ("DATABASE_URL", "postgres://db/x", False),
        ("http_proxy", "me:hunter2@proxy:3128", True),
        ("http_proxy", "proxy:3128", False),
        ("IMAGE", "repo:tag@sha256:abcd", False),
        ("XAUTHORITY", "/root/.Xauthority", False),
        ("PGPASSFILE", "/root/.pgpass", False),
        ("IS_PRIVATE", "false", False),
    ],
)
def test_the_value_counts_too(name: str, value: str, secret: bool) -> None:
    assert redact.secret(name, value) is secret


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("MYPASS = 'hunter2x'", "MYPASS = ***"),
        ("DB_PASS: hunter2x", "DB_PASS: ***"),
        ("env: SENTRY_DSN=https://a.b/1, LR=3", "env: SENTRY_DSN=*** LR=3"),
        ("PASS: test_x", "PASS: test_x"),
        ("KEY: value", "KEY: value"),
        ("FIRST_PASS: done", "FIRST_PASS: done"),
        ("NUM_PASSES = adamw", "NUM_PASSES = adamw"),
    ],
)
def test_a_line_of_a_log_names_them_too(line: str, shown: str) -> None:
    assert redact.text(line) == shown


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["t.py", "--jwt", "hunter2x"], "t.py --jwt ***"),
        (["t.py", "--pin", "4711"], "t.py --pin ***"),
        (["t.py", "--db-dsn=hunter2x"], "t.py --db-dsn=***"),
        (["t.py", "db.mypass=hunter 2x"], "t.py db.mypass=***"),
        (["t.py", "--private", "train.bin"], "t.py --private train.bin"),
        (["t.py", "--pin-memory", "true"], "t.py --pin-memory true"),
        (["t.py", "--pass", "3"], "t.py --pass 3"),
        (["t.py", "--sort-key", "name"], "t.py --sort-key name"),
        (["t.py", "--session", "train"], "t.py --session train"),
        (["t.py", "--cert-key", "/etc/x.key"], "t.py --cert-key /etc/x.key"),
    ],
)
def test_options_go_by_the_same_names(argv: list[str], shown: str) -> None:
    assert redact.command(argv) == shown


@pytest.mark.parametrize(
    "path",
    [".env", ".env.local", "prod.env", "sub/.ENV", ".envrc", "a/server.pem", "x.key", "id_rsa",
     "keys/id_ed25519", "credentials", "credentials.json", "app_credentials.json", ".netrc",
     ".aws/", ".aws/config", ".ssh/known_hosts", "secrets.yaml", ".npmrc", "kaggle.json",
     "client_secret_12.json", ".pypirc"],
)  # fmt: skip
def test_a_file_that_may_hold_secrets(path: str) -> None:
    assert may_hold_secrets(path)


@pytest.mark.parametrize(
    "path",
    [".env.example", ".env.sample", "env.py", "environment.yml", "id_rsa.pub", "credentials.py",
     "credentials/", "credentials/model.py", "keys.py", "key.txt", "train.py", "monkey", "aws/x",
     "secrets.py", "configs/base.yaml", "cert.crt"],
)  # fmt: skip
def test_a_file_that_does_not(path: str) -> None:
    assert not may_hold_secrets(path)
