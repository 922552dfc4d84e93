"""What a difference shows of a line: the code, and no secret."""

from __future__ import annotations

import time

import pytest

from fleetstop.core.code_lines import Style, masked, style_of


@pytest.mark.parametrize(
    ("style", "line", "shown"),
    [
        ("code", 'API_KEY = "hunter2x"', 'API_KEY = "***"'),
        ("code", "API_KEY: str = 'hunter2x'  # mine", "API_KEY: str = '***'  # mine"),
        ("code", 'os.environ["MYPASS"] = "hunter2x"', 'os.environ["MYPASS"] = "***"'),
        (
            "code",
            'x = os.environ.get("DB_PASS", "hunter2x")',
            'x = os.environ.get("DB_PASS", "***")',
        ),
        ("code", "login(token='hunter2x', lr=3)", "login(token='***', lr=3)"),
        ("code", 'd = {"password": "hunter2x", "a": 1}', 'd = {"password": "***", "a": 1}'),
        ("code", 'self.db.password = b"hunter2x"', 'self.db.password = b"***"'),
        ("code", 'if password == "hunter2x":', 'if password == "***":'),
        ("code", 'JWT = """hunter2x', 'JWT = """***'),
        ("code", '"API_KEY = \\"hunter2x\\"\\n",', '"API_KEY = \\"***\\"\\n",'),
        ("code", "wandb.login('hf_AbCdEfGh12345678')", "wandb.login('***')"),
        ("code", 'u = "postgres://me:hunter2x@db/x"', 'u = "postgres://me:***@db/x"'),
        ("code", 'h = {"A": "Bearer hunter2xhunter2x"}', 'h = {"A": "Bearer ***"}'),
        ("code", 'key = "Zq9xW3vK7pLm2RtY"', 'key = "***"'),
        ("text", "password: two words", "password: ***"),
        ("text", "  - DB_PASS=hunter2x", "  - DB_PASS=***"),
        ("text", "mypass = hunter2x", "mypass = ***"),
        ("text", '"jwt": "hunter2x",', '"jwt": "***",'),
        ("shell", "export MYPASS=hunter2x", "export MYPASS=***"),
        ("shell", "PIN=4711 python3 train.py", "PIN=*** python3 train.py"),
        ("shell", "curl -u me:hunter2x https://x", "curl -u me:*** https://x"),
    ],
)
def test_a_secret_is_masked(style: Style, line: str, shown: str) -> None:
    assert masked(line, style) == shown
    assert masked(shown, style) == shown


@pytest.mark.parametrize(
    ("style", "line"),
    [
        ("code", "token = tokenizer.encode(text)"),
        ("code", "def load(token: str, key: int = 3) -> None:"),
        ("code", 'key = "train/loss"'),
        ("code", 'sort(rows, key="name", sort_key="step")'),
        ("code", 'tok.pad_token = "[PAD]"; tok.eos_token = "</s>"'),
        ("code", 'password = os.environ["DB_PASS"]'),
        ("code", 'headers = {"Authorization": f"Bearer {token}"}'),
        ("code", "parser.add_argument('--passes', default='3')"),
        ("code", 'session = "train"; pin_memory = "yes"; author = "me"'),
        ("code", 'api_key = f"{key}"; auth = ""; use_auth = "no"'),
        ("code", 'f(token, "x")'),
        ("text", "tokenizer: gpt2"),
        ("text", "lr: 3e-4"),
        ("text", "max_tokens: 2048"),
        ("text", "pin_memory: true"),
        ("text", "compass: north"),
        ("shell", 'export HF_HOME=/x PATH="$PATH:/y"'),
    ],
)
def test_code_stays_as_it_is(style: Style, line: str) -> None:
    assert masked(line, style) == line


def test_the_style_is_told_by_the_end_of_the_name() -> None:
    names = ("a/train.py", "run.sh", "base.yaml", "Dockerfile", "x.PY")
    assert [style_of(each) for each in names] == ["code", "shell", "text", "text", "code"]


@pytest.mark.parametrize("piece", ["a", "a.", "key=", 'key="', "'", '"', "\\", "token: ", "a: b ="])
def test_a_long_line_costs_little(piece: str) -> None:
    line, start = (piece * 2000)[:2000], time.perf_counter()
    styles: tuple[Style, ...] = ("code", "shell", "text")
    for style in styles:
        masked(line, style)
    assert time.perf_counter() - start < 2
