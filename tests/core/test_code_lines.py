"""What a difference shows of a line: the code, and no secret."""

from __future__ import annotations

import time

import pytest

from fleetstop.core.code_lines import Style, masked, masked_beside, style_of


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
        ("text", "ENV HF_TOKEN hunter2x", "ENV HF_TOKEN ***"),
        ("text", 'ENV  DB_PASS  "two words"', "ENV  DB_PASS  ***"),
        ("text", "ENV A=b MYPASS=hunter2x", "ENV A=b MYPASS=***"),
        ("shell", "export HF_TOKEN hunter2x", "export HF_TOKEN ***"),
        ("text", "setenv MYPASS hunter2x", "setenv MYPASS ***"),
        ("text", "if (1) setenv MYPASS hunter2x", "if (1) setenv MYPASS ***"),
        ("shell", "tmux setenv -g HF_TOKEN hunter2x", "tmux setenv -g HF_TOKEN ***"),
        ("shell", "set -gx HF_TOKEN hunter2x", "set -gx HF_TOKEN ***"),
        ("text", "setx DB_PASS hunter2x", "setx DB_PASS ***"),
        ("text", '{"name": "X_TOKEN", "value": "hunter2x"}', '{"name": "X_TOKEN", "value": "***"}'),
        (
            "text",
            '[{"value":"hunter2x","name":"X_TOKEN"},{"name":"LR","value":"3"}]',
            '[{"value":"***","name":"X_TOKEN"},{"name":"LR","value":"3"}]',
        ),
        (
            "text",
            "[{name: LR, value: 3}, {name: MYPASS, value: hunter2x}]",
            "[{name: LR, value: 3}, {name: MYPASS, value: ***}]",
        ),
        ("text", '<add key="DB_PASS" value="hunter2x" />', '<add key="DB_PASS" value="***" />'),
        ("code", 'EnvVar(name="X_TOKEN", value="hunter2x")', 'EnvVar(name="X_TOKEN", value="***")'),
        (
            "code",
            'd = {"name": "MYPASS", "value": "hunter2x"}',
            'd = {"name": "MYPASS", "value": "***"}',
        ),
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
        ("text", "ENV LR 3e-4"),
        ("text", "ENV HF_TOKEN $HF_TOKEN"),
        ("shell", "export HF_TOKEN WANDB_API_KEY"),
        ("shell", "export HF_TOKEN  # said before"),
        ("shell", "export HF_TOKEN && run"),
        ("shell", "set -e; token me"),
        ("text", '{"name": "LR", "value": "hunter2x"}'),
        ("text", '{"name": "pad_token", "value": "[PAD]"}'),
        ("code", 'EnvVar(name="X_TOKEN", value=token)'),
    ],
)
def test_code_stays_as_it_is(style: Style, line: str) -> None:
    assert masked(line, style) == line


@pytest.mark.parametrize(
    ("style", "text", "shown"),
    [
        ("text", "env:\n- name: X_TOKEN\n  value: hunter2x\n- name: LR\n  value: 3e-4",
         {2: "  value: ***"}),
        ("text", "- value: 'hunter2x'\n  name: X_TOKEN\n- value: b\n  name: LR",
         {0: "- value: '***'"}),
        ("text", "- name: LR\n- name: X_TOKEN\n\n  value: hunter2x", {}),
        ("text", "- name: X_TOKEN\n  about: me\n  value: hunter2x", {2: "  value: ***"}),
        ("text", '{\n "name": "X_TOKEN",\n "value": "hunter2x",\n}', {2: ' "value": "***",'}),
        ("text", "name: X_TOKEN\nspec:\n  value: hunter2x", {}),
        ("text", "- name: X_TOKEN\n- value: hunter2x", {}),
        ("text", "- name: X_TOKEN\n  valueFrom: a\n- name: LR\n  value: hunter2x", {}),
        ("text", "- name: X_TOKEN\n  value: $(TOKEN)", {}),
        ("text", "token: |\n  hunter2x\n  more\nlr: |\n  3", {1: "  ***", 2: "  ***"}),
        ("text", "- name: X_TOKEN\n  value: >-\n    hunter2x\n- name: LR", {2: "    ***"}),
        ("code", 'EnvVar(\n  name="X_TOKEN",\n  value="hunter2x",\n)', {2: '  value="***",'}),
        ("code", 'EnvVar(\n  name="X_TOKEN",\n  value=token,\n)', {}),
    ],
)  # fmt: skip
def test_a_value_is_masked_that_another_line_names(
    style: Style, text: str, shown: dict[int, str]
) -> None:
    lines = text.split("\n")
    assert masked_beside(lines, style) == shown
    again = [shown.get(at, line) for at, line in enumerate(lines)]
    assert [masked_beside(again, style).get(at, line) for at, line in enumerate(again)] == again


def test_the_style_is_told_by_the_end_of_the_name() -> None:
    names = ("a/train.py", "run.sh", "base.yaml", "Dockerfile", "x.PY")
    assert [style_of(each) for each in names] == ["code", "shell", "text", "text", "code"]


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "a.",
        "key=",
        'key="',
        "'",
        '"',
        "\\",
        "token: ",
        "a: b =",
        "ENV a ",
        "name: a, value: b ",
        "value: a, name: ",
        "name=",
        "value='",
    ],
)
def test_a_long_line_costs_little(piece: str) -> None:
    line, start = (piece * 2000)[:2000], time.perf_counter()
    styles: tuple[Style, ...] = ("code", "shell", "text")
    for style in styles:
        masked(line, style)
        masked_beside([line] * 20, style)
    assert time.perf_counter() - start < 2
