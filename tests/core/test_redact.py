"""Nothing from elsewhere reaches a screen with a secret or a control character in it."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetstop.core import redact

KEY = "Zq9xW3vK7pLm2RtY"
HEX40 = "0123456789abcdef0123456789abcdef01234567"

ARGVS: list[tuple[list[str], str]] = [
    (["train", "--password", KEY], KEY),
    (["train", f"--password={KEY}"], KEY),
    (["train", "--token", KEY, "--lr", "3"], KEY),
    (["train", f"--hf-token={KEY}"], KEY),
    (["train", "--api-key", KEY], KEY),
    (["train", "--api_key", KEY], KEY),
    (["train", "--secret", KEY], KEY),
    (["train", "--secret-access-key", KEY], KEY),
    (["train", "--wandb-key", KEY], KEY),
    (["train", "-token", KEY], KEY),
    (["env", f"HF_TOKEN={KEY}", "python3"], KEY),
    (["env", f"wandb_api_key={KEY}"], KEY),
    (["env", f"AWS_SECRET_ACCESS_KEY={KEY}"], KEY),
    (["env", f"AWS_ACCESS_KEY_ID={KEY}"], KEY),
    (["env", f"OPENAI_APIKEY={KEY}"], KEY),
    (["env", f"PGPASSWORD={KEY} with blanks {KEY}"], KEY),
    (["env", f"DB_PASSWD='{KEY}'"], KEY),
    (["env", f"MYSQL_PWD={KEY}"], KEY),
    (["env", f"REGISTRY_AUTH={KEY}"], KEY),
    (["env", f"GOOGLE_CREDENTIALS={KEY}"], KEY),
    (["hydra", f"+logger.wandb.api_key={KEY}"], KEY),
    (["curl", "-H", f"Authorization: Bearer {KEY}"], KEY),
    (["curl", "-H", f"authorization: Basic {KEY}"], KEY),
    (["curl", "-H", f"X-Api-Key: {KEY}"], KEY),
    (["git", "clone", f"https://me:{KEY}@example.org/x.git"], KEY),
    (["git", "clone", f"https://{KEY}{KEY}@example.org/x.git"], KEY),
    (["psql", f"postgres://u:{KEY}p@ss@db/x"], KEY),
    (["login", f"hf_{KEY}"], KEY),
    (["login", f"sk-proj-{KEY}"], KEY),
    (["login", f"ghp_{KEY}"], KEY),
    (["login", "AKIAIOSFODNN7EXAMPLE"], "IOSFODNN7EXAMPLE"),
    (["wandb", "login", HEX40], HEX40),
    (["wandb", "login", "--relogin", HEX40], HEX40),
    (["bash", "-c", f"TOKEN={KEY} exec python3 train.py"], KEY),
    (["bash", "-c", f"python3 train.py --token '{KEY} {KEY}' --lr 3"], KEY),
    ([f"python3 train.py --token\t{KEY}"], KEY),
    (["train", f'{{"api_key": "{KEY}", "lr": 3}}'], KEY),
    (["train", f'--config={{"token":"{KEY}"}}'], KEY),
    (["train", f"--data=https://s3/x?X-Amz-Credential={KEY}&y=1"], KEY),
    (["sshpass", "-p", KEY, "ssh", "pve"], KEY),
    (["train", f"--password=\x1b[1m{KEY}"], KEY),
    # by the place alone
    (["mysql", "-u", "root", f"-p{KEY}", "db"], KEY),
    (["/usr/bin/mysqldump", "-phunteronly", "db"], "hunteronly"),
    (["mariadb-dump", "-pmy blanks", "db"], "my blanks"),
    (["bash", "-c", f"mysql -uroot -p'{KEY}' db | gzip"], KEY),
    (["train", f"-p{KEY}"], KEY),
    (["redis-cli", "-h", "db", "-a", KEY], KEY),
    (["mongosh", "-u", "x", "-p", KEY], KEY),
    (["docker", "login", "-u", "me", "-p", KEY, "reg"], KEY),
    (["ldapsearch", "-D", "cn=x", "-w", KEY], KEY),
    (["curl", "-u", f"me:{KEY}", "https://x"], KEY),
    (["curl", f"--user=me:{KEY}"], KEY),
    (["smbclient", "-U", f"me%{KEY}"], KEY),
    (["wandb", "login", KEY], KEY),
    (["train", f"--key={KEY}"], KEY),
    (["train", "--key", "hunteronly"], "hunteronly"),
    (["train", f"key={KEY}"], KEY),
    (["train", f"key: {KEY}"], KEY),
    (["train", f'{{"key": "{KEY}"}}'], KEY),
    (["train", f"--signing-key={KEY}"], KEY),
    (["env", f"SSH_KEY={KEY}"], KEY),
    (["env", "COMET_KEY=hunteronly"], "hunteronly"),
    (["env", f"AWS_SESSION_TOKEN={KEY}"], KEY),
    (["env", f"AWS_ANYTHING={KEY}"], KEY),
    (["train", "--pass", KEY], KEY),
    (["train", f"--pwd={KEY}"], KEY),
    (["env", f"DB_PASS={KEY}"], KEY),
    (["openssl", "rsa", "-passin", f"pass:{KEY}"], KEY),
    (["curl", "-H", f"Cookie: sid={KEY}; b={KEY}"], KEY),
    (["curl", "-H", f"Proxy-Authorization: Bearer {KEY}"], KEY),
    (["curl", f"https://hooks.slack.com/services/T000/B000/{KEY}"], KEY),
    (["psql", f"redis://:{KEY}@db:6379/0"], KEY),
]

BENIGN_TEXTS = [
    "step 41210 loss 1.83 14.0K tok/s",
    "tokens=14.0K tokens: 4096 max_tokens=2048 tokenizer=gpt2 tokenizer: fast",
    "python3 -u /root/train_dflash_pipeline.py --tokenizer gpt2 --max-tokens 4096",
    "TOKENIZERS_PARALLELISM=false author=me",
    "commit 0123456789abcdef0123456789abcdef01234567",
    "http://127.0.0.1:8080/path ssh://root@h:2222/200",
    "pve1: login refused for root (publickey, password)",
    "höhe 3 µs, 文件 ok",
    "C:\\new\\table",
    "task-12345678 disk-A1234567 sk-learn-contrib",
    "docker run -p 8080:80 -p8081:81 -u 1000:1000 img",
    "ssh -p22 -p 2222 host; mkdir -p /a/b1; cp -pr a b; tar -pxf x.tar; ps -p 123",
    "cc -pthread -pedantic; rsync -p/data/run1234567",
    "python3 train.py --pass 3 --key /etc/ssl/x.key --sort-key=name --hotkey=F1",
    "missing key: encoder.layer.12.weight; dict key: value; key=loss; KeyError: 'step'",
    "num_key_value_heads=8 key_padding_mask: None monkey=3 passes=4 bypass=true compass=1",
    "AWS_REGION=eu-west-1 AWS_DEFAULT_REGION=eu-west-1 AWS_PROFILE=dev AWS_CONFIG_FILE=/x/config",
    "PWD=/root OLDPWD=/tmp SSL_KEY=/etc/ssl/x.key mysql -h db -P 3306 --port=3306",
    "",
]

PIECES = st.lists(
    st.one_of(
        st.sampled_from(list("aK9=:-_'\"\\ \t\n/@*.\x1b\x9b\u202e\u200b\u2028\udcff\x7f\x00")),
        st.sampled_from(
            ["token", "--password", "TOKEN=", "Bearer ", "://", "hf_", " key ", HEX40, "secret"]
        ),
        st.sampled_from(["mysql ", "-p", "-u ", "me:", "--key=", "_KEY=", "AWS_", "cookie: "]),
        st.sampled_from(["authorization: ", "sk-", "AKIA", "sshpass -p ", "sig=", "tokens", KEY]),
        st.characters(),
    ),
    max_size=30,
).map("".join)


def controls(text: str) -> list[str]:
    return [each for each in text if unicodedata.category(each) in ("Cc", "Cf", "Cs", "Zl", "Zp")]


@pytest.mark.parametrize(("argv", "secret"), ARGVS)
def test_a_secret_in_arguments_is_never_shown(argv: list[str], secret: str) -> None:
    for shown in (redact.command(argv), redact.text(redact.command(argv))):
        assert secret not in shown
        assert redact.MASK in shown


@pytest.mark.parametrize(("argv", "secret"), ARGVS)
def test_a_secret_in_a_log_line_is_never_shown(argv: list[str], secret: str) -> None:
    if any("blanks" in word for word in argv):
        return  # without quotes nobody can tell where it ends
    assert secret not in redact.text(" ".join(argv))


@pytest.mark.parametrize("line", BENIGN_TEXTS)
def test_benign_text_stays_as_it_is(line: str) -> None:
    assert redact.text(line) == line


def test_what_is_no_secret_stays_in_a_command() -> None:
    argv = ["python3", "-u", "/root/train.py", "--tokenizer", "gpt2", "--name", "two words", "it's"]
    assert redact.command(argv) == (
        "python3 -u /root/train.py --tokenizer gpt2 --name 'two words' 'it'\"'\"'s'"
    )
    assert redact.command(["x", "--use-auth-token", "--lr", "3"]) == "x --use-auth-token --lr 3"
    assert redact.command(["x", "", "*"]) == "x '' '*'"
    assert redact.command(["env", "A_TOKEN=x", "y"]) == "env A_TOKEN=*** y"
    assert redact.command(["bash", "-c", "A_TOKEN=x y"]) == "bash -c 'A_TOKEN=*** y'"
    assert redact.command([]) == ""
    # nor is what stands behind a masked argument hidden with it
    header = f"Authorization: Bearer {KEY}"
    shown = "curl -H 'Authorization: ***' https://host/x --lr 3"
    assert redact.command(["curl", "-H", header, "https://host/x", "--lr", "3"]) == shown
    assert redact.text(shown) == shown


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[2J", r"\x1b[2J"),
        ("a\nb\tc\rd", r"a\nb\tc\rd"),
        ("\x9b31m", r"\x9b31m"),
        ("\x7f\x00", r"\x7f\x00"),
        ("\u202etxt\u2066", r"\u202etxt\u2066"),
        ("\u200e\u200f\u200b\ufeff", r"\u200e\u200f\u200b\ufeff"),
        ("\u2028\u2029", r"\u2028\u2029"),
        ("\udcff", r"\xff"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_hostile_characters_become_visible(hostile: str, shown: str) -> None:
    assert redact.safe(hostile) == shown


def test_the_limit_holds_after_escaping() -> None:
    assert redact.safe("abcdef", 6) == "abcdef"
    assert redact.safe("abcdefg", 6) == "abcde…"
    assert len(redact.safe("\x1b" * 50, 10)) == 10
    assert redact.safe("abc", 1) == "…"


@given(PIECES)
def test_no_output_has_a_control_character(line: str) -> None:
    for shown in (redact.safe(line), redact.text(line), redact.command([line, line])):
        assert controls(shown) == []
        shown.encode("utf-8")


@given(PIECES)
def test_once_is_enough(line: str) -> None:
    assert redact.safe(redact.safe(line)) == redact.safe(line)
    assert redact.text(redact.text(line)) == redact.text(line)


@given(PIECES, st.integers(1, 40))
def test_the_limit_is_kept(line: str, limit: int) -> None:
    assert len(redact.safe(line, limit)) <= limit
    assert redact.safe(redact.safe(line, limit), limit) == redact.safe(line, limit)


@given(st.text(st.characters(categories=("L", "N", "Zs")), max_size=40))
def test_letters_digits_and_blanks_are_safe_already(line: str) -> None:
    assert redact.safe(line) == line


@pytest.mark.parametrize(
    "piece",
    [
        *("token", "--a", "a-", "://a", "hf_a", "'", '"', "key ", "eyJaaaaaaaa.", "\\"),
        *(
            "mysql ",
            "mysql -u",
            "-pa1",
            "-u a:",
            "-U a%",
            "docker login ",
            "ldapx ",
            "wandb login ",
        ),
        *("--a-pass ", "A_KEY=", "key=aB", "AWS_A", "AWS_A=", "cookie: a", "A1_", "redis-cli -a "),
    ],
)
def test_a_long_hostile_line_costs_little(piece: str) -> None:
    line = piece * (60_000 // len(piece))
    start = time.perf_counter()
    redact.text(line)
    assert time.perf_counter() - start < 5


def test_a_program_given_as_an_argument_does_not_fill_the_screen() -> None:
    said = redact.brief(
        ["bash", "-c", "while true; do\n  python train.py --token=abc123xyz\ndone\n" * 99]
    )
    assert said.startswith("bash -c 'while true; do")
    assert said.endswith("…")
    assert len(said) == 100
    assert "\n" not in said
    assert "abc123xyz" not in said
    assert redact.brief(["python", "train.py"]) == "python train.py"


def test_a_command_to_type_names_the_inventory_before_the_job_s_own_words() -> None:
    line = redact.typed(["restart", "ct200", "--", "--lr", "1"], "my fleet.yaml")
    assert line == "fleetstop restart ct200 -i 'my fleet.yaml' -- --lr 1"
