from __future__ import annotations

import json
import random
import shutil
import subprocess

import pytest

from fleetstop.lab.files import pct_options
from fleetstop.lab.files.pct_options import BadRequest, get_options, parse_options

# the same call as JSONSchema.pm's get_options makes
ORACLE = r"""
use Getopt::Long; use JSON::PP; local $/; my $cases = decode_json(<STDIN>); my @out;
Getopt::Long::Configure('prefix_pattern=(--|-)');
$SIG{__WARN__} = sub {};
for my $argv (@$cases) {
    my %opts; my @args = @$argv;
    my $ok = Getopt::Long::GetOptionsFromArray(
        \@args, \%opts, 'vmid=s', 'keep-env:s', 'extra-args=s@');
    push @out, $ok ? [\%opts, \@args] : JSON::PP::null;
}
print encode_json(\@out);
"""
WORDS = ["200", "--", "-", "-k", "--keep-env", "--keep-env=0", "-keep-env=", "--vm", "-vmid=7"]
WORDS += ["ls", "-la", "--e", "--extra-args=a", "--KEEP", "--keep=", "---x", "", "--=x", "0"]


def test_words_are_read_as_perls_getopt_long_reads_them() -> None:
    if not shutil.which("perl"):
        pytest.skip("needs perl")
    dice = random.Random(4)
    cases = [dice.choices(WORDS, k=dice.randrange(6)) for _ in range(4000)]
    done = subprocess.run(
        ["perl", "-e", ORACLE], input=json.dumps(cases), capture_output=True, text=True, check=True
    )
    _, specs, _ = pct_options.COMMANDS["exec"]
    for argv, expected in zip(cases, json.loads(done.stdout), strict=True):
        try:
            ours: object = list(parse_options(argv, specs))
        except BadRequest:
            ours = None
        assert ours == expected, argv


@pytest.mark.parametrize(
    ("argv", "options"),
    [
        (["200", "true"], {"vmid": "200", "extra-args": ["true"]}),
        (["200", "--", "ls", "-la"], {"vmid": "200", "extra-args": ["ls", "-la"]}),
        (["200", "--", "a", "--", "b"], {"vmid": "200", "extra-args": ["a", "--", "b"]}),
        (["200"], {"vmid": "200", "extra-args": []}),
        (
            ["200", "--keep-env", "off", "--", "x"],
            {"vmid": "200", "keep-env": "0", "extra-args": ["x"]},
        ),
        (["--keep-env", "--", "200", "x"], {"vmid": "200", "keep-env": "1", "extra-args": ["x"]}),
    ],
)
def test_what_exec_understands(argv: list[str], options: dict[str, object]) -> None:
    assert get_options("exec", argv, utf8=True) == options


@pytest.mark.parametrize(
    ("command", "argv", "text"),
    [
        ("exec", ["200", "ls", "-la"], "unable to parse option\n"),
        ("exec", ["--keep-env", "200", "--", "true"], "unable to parse boolean option\n"),
        ("exec", ["--keep-env", "200"], "not enough arguments\n"),
        ("exec", [], "not enough arguments\n"),
        ("list", ["200"], "too many arguments\n"),
        (
            "status",
            ["abc"],
            "Parameter verification failed.\nvmid: type check ('integer') failed - got 'abc'\n",
        ),
        (
            "status",
            ["99"],
            "Parameter verification failed.\n"
            "vmid: invalid format - value does not look like a valid VM ID\n\n",
        ),
    ],
)
def test_what_is_refused(command: str, argv: list[str], text: str) -> None:
    with pytest.raises(BadRequest) as refused:
        get_options(command, argv, utf8=True)
    assert str(refused.value) == text
