"""What may be shown of text from elsewhere: no secrets, no control characters. Knows no terminal.

`safe` makes text harmless, `scrub` takes secrets out, `text` does both for a log line or an
error, `command` does both for an argument vector. All but `command` are idempotent.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from fleetstop.core.secret_names import looks_drawn, names_secret, plain_value, weak

MASK = "***"

# What names a secret inside a key or an option. `tokenizer`, `tokens` and `author` do not.
_WORD = (
    r"(?:(?<!pad_)(?<!eos_)(?<!bos_)(?<!unk_)token(?!iz|is|s)|secret|passw(?:or)?d|passphrase"
    r"|(?:api|access|private|wandb|account|encryption)[_.\-]?key|credential|auth(?!or(?!i)|[_.\-]?ur[il])"
    r"|(?<=_)pwd|tokens(?=[\w\"']{0,2}\s?[=:]\s?[\"']?[a-z_]))"
)
_TAIL = r"[\w.\-]{0,40}"
_BLANK = r"(?:\s|\\[tnr])"
# A shell word or a quoted text; the parts cannot overlap, so nothing is tried twice. What is masked
# already ends where the mask does: the quote behind it closes the argument, and opens no text.
_VALUE = (
    r"""(?:\*\*\*(?=[\s"']|\Z)"""
    r"""|(?:"(?:\\.|[^"\\])*(?:"|\\?\Z)|'[^']*(?:'|\Z)|\\[^tnr]|[^\s"'\\]|\\(?=[tnr]|\Z))+)"""
)

_I = re.IGNORECASE
_Rule = tuple[re.Pattern[str], str]
_PEM: _Rule = (
    re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*", _I | re.DOTALL),
    MASK,
)
_NAMED: tuple[_Rule, ...] = (
    # Authorization: Bearer x, also as JSON or key=value
    (
        re.compile(
            rf"(authorization[\"']?{_BLANK}?[:=]{_BLANK}{{0,3}}[\"']?)"
            rf"(?:(?:bearer|basic|token|digest|apikey|negotiate){_BLANK}{{1,3}})?[^\s\"']+",
            _I,
        ),
        rf"\1{MASK}",
    ),
    (re.compile(rf"(\bbearer{_BLANK}{{1,3}})[^\s\"']+", _I), rf"\1{MASK}"),
    # --hf-token X, -token=X, --secret-key "X"
    (
        re.compile(
            rf"((?<![\w-])--?[\w.\-]{{0,40}}?{_WORD}{_TAIL}(?:{_BLANK}{{1,3}}|=))(?!-){_VALUE}", _I
        ),
        rf"\1{MASK}",
    ),
    # API_KEY=X, wandb.api_key: X, "token": "X"
    (
        re.compile(rf"({_WORD}{_TAIL}\\?[\"']?{_BLANK}?[:=](?!/)={{0,2}}{_BLANK}?){_VALUE}", _I),
        rf"\1{MASK}",
    ),
)
# Told by their own look, wherever they stand.
_LOOKS: tuple[_Rule, ...] = (
    (re.compile(r"((?<![a-z])sig=)[^\s&\"']+", _I), rf"\1{MASK}"),
    # scheme://user:pass@host and scheme://longtoken@host
    (re.compile(r"(://[^\s/:@]{0,200}:)[^\s/]+@"), rf"\1{MASK}@"),
    (re.compile(r"(://)[A-Za-z0-9_\-]{20,}(:?@)"), rf"\1{MASK}\2"),
    (re.compile(rf"(\bsshpass{_BLANK}{{1,3}}-p{_BLANK}{{0,3}})(?!-){_VALUE}"), rf"\1{MASK}"),
    # keys known by their own look
    (re.compile(r"\bhf_(?=[A-Za-z]{0,40}[A-Z0-9])[A-Za-z0-9]{8,}"), MASK),
    (re.compile(r"\b(?:sk|pk|rk)-(?=[A-Za-z_\-]{0,40}[A-Z0-9])[A-Za-z0-9_\-]{8,}"), MASK),
    (re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|npm_|xox[abeprs]-)[\w\-]{8,}"), MASK),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}"), MASK),
    (re.compile(r"\bAIza[\w\-]{30,}"), MASK),
    (re.compile(r"\bwandb_v1_\w{8,}"), MASK),
    (re.compile(r"\beyJ[\w\-]{8,}\.[\w\-]{4,}(?:\.[\w\-]{0,2000})?"), MASK),
    # wandb's 40 hex digits; a commit hash looks alike, so only after such a word
    (
        re.compile(
            r"((?<![a-z])(?:wandb|key|login)(?![a-z])[^\n]{0,24}?)(?<![0-9a-z])[0-9a-f]{40}(?![0-9a-z])",
            _I,
        ),
        rf"\1{MASK}",
    ),
)
_RULES = (_PEM, *_NAMED, *_LOOKS)
# What names a secret only beside a value that looks like one: `--sort-key=name` stays.
_KEYLIKE = (
    r"(?:(?=[\w+/=~.\-]{0,200}?[A-Z])(?=[\w+/=~.\-]{0,200}?[a-z])(?=[\w+/=~.\-]{0,200}?[0-9])"
    r"[A-Za-z0-9+~][\w+/=~\-]{7,}|(?=[A-Z]{0,40}[0-9])[A-Z0-9]{8,}|[0-9a-f]{16,}|(?=[a-z]{0,40}[0-9])[a-z0-9]{12,})(?![\w.])"
)
_NO_PATH = r"(?![/~.\-]|[0-9]+(?:\s|\Z)|\*\*\*)"
_Q = r"[\"']?"
_FAR = r"[^\n|;&]{0,300}?"
_AWS = (
    r"AWS_(?!\w{0,40}(?:REGION|PROFILE|OUTPUT|ENDPOINT|URL|FILE|BUNDLE|MODE|ATTEMPTS|PAGER|DISABLED"
    r"|ENV)\w{0,20}=)\w{1,60}="
)
_PLACES: tuple[tuple[re.Pattern[str], str], ...] = (
    # what a program takes for a password: mysql -pX, redis-cli -a X, docker login -p X, ldap -w X
    (
        re.compile(
            rf"(\b(?:mysql\w{{0,20}}|mariadb[\w\-]{{0,20}}|mycli|7z[ar]?)\b{_FAR}\s-p)(?![\s-]){_VALUE}"
        ),
        rf"\1{MASK}",
    ),
    (
        re.compile(rf"(\b(?:mysql\w{{0,20}}|mariadb[\w\-]{{0,20}})\b{_FAR}\s'-p)[^'\n]+"),
        rf"\1{MASK}",
    ),
    (re.compile(rf"(\bredis-cli\b{_FAR}\s-a{_BLANK}{{1,3}})(?!-){_VALUE}"), rf"\1{MASK}"),
    (
        re.compile(
            rf"(\b(?:mongo\w{{0,20}}|(?:docker|podman|nerdctl|buildah|skopeo|helm|oc|az)\b{_FAR}\blogin)"
            rf"\b{_FAR}\s-p{_BLANK}{{1,3}})(?!-){_VALUE}"
        ),
        rf"\1{MASK}",
    ),
    (re.compile(rf"(\bldap\w{{1,20}}\b{_FAR}\s-w{_BLANK}{{1,3}})(?!-){_VALUE}"), rf"\1{MASK}"),
    (
        re.compile(rf"(\bwandb{_BLANK}{{1,3}}login\b{_FAR}{_BLANK})(?!-)[A-Za-z0-9_\-]{{16,}}"),
        rf"\1{MASK}",
    ),
    # any program: -pX that is no port, no path and no cluster of letters
    (
        re.compile(
            r"((?<![\w\-])-p)(?=[^\s\"']{0,80}?[A-Za-z])(?=[^\s\"']{0,80}?[0-9])"
            r"(?![./~])[^\s\"'=]{8,}"
        ),
        rf"\1{MASK}",
    ),
    # curl -u me:X, --user me:X, smbclient -U me%X; a user and group in numbers are none
    (
        re.compile(
            rf"((?<![\w\-])(?:-u|--user|--proxy-user)(?:{_BLANK}{{1,3}}|=){_Q}[^\s:\"'/]{{1,80}}:)"
            rf"(?![0-9]+(?:\s|\Z))[^\s\"']+"
        ),
        rf"\1{MASK}",
    ),
    (re.compile(rf"((?<![\w\-])-U{_BLANK}{{0,3}}{_Q}[^\s%\"']{{1,80}}%)[^\s\"']+"), rf"\1{MASK}"),
    # --pass X, --pw=X, DB_PASS=X, openssl -passin pass:X; `--pass 3` counts
    (
        re.compile(
            rf"((?<![\w\-])--?(?:[\w\-]{{0,40}}[\-_])?(?:pass|pwd|pw)(?:{_BLANK}{{1,3}}|=))"
            rf"(?!pass:|env:|file:){_NO_PATH}{_VALUE}",
            _I,
        ),
        rf"\1{MASK}",
    ),
    (
        re.compile(
            rf"((?<![A-Za-z])(?i:(?<!first_)(?<!second_)(?<!ward_)pass)=){_NO_PATH}{_VALUE}"
        ),
        rf"\1{MASK}",
    ),
    (re.compile(rf"((?<![\w\-])-pass(?:in|out)?{_BLANK}{{1,3}}pass:)[^\s\"']+"), rf"\1{MASK}"),
    # --key X: any value but a path; `key: X`, --sort-key=X: where it looks like one
    (
        re.compile(rf"((?<![\w\-])--key(?:{_BLANK}{{1,3}}|=)){_NO_PATH}{_VALUE}"),
        rf"\1{MASK}",
    ),
    (
        re.compile(
            rf"((?<![A-Za-z])(?i:key)\\?{_Q}(?:{_BLANK}?[:=]{_BLANK}?|{_BLANK}){_Q}){_KEYLIKE}"
        ),
        rf"\1{MASK}",
    ),
    (re.compile(rf"((?<![A-Za-z]){_AWS}){_VALUE}"), rf"\1{MASK}"),
    (re.compile(rf"(\b(?:set-)?cookie{_Q}{_BLANK}?[:=]{_BLANK}?{_Q})[^\"'\n]+", _I), rf"\1{MASK}"),
    # a hook's address is its key
    (
        re.compile(r"(hooks\.slack\.com/\w{1,20}/|discord(?:app)?\.com/api/webhooks/)[\w/\-]+"),
        rf"\1{MASK}",
    ),
)
# Without one of these no rule of _PLACES fits: most log lines are done with sooner.
_MAY_STAND = re.compile(r"-[apwu]|p(?:ass|wd|w)|key|aws_|cookie|slack|discord|wandb", _I)
# MYPASS=X, JWT=X, DB_PASS: X: what nobody but a variable is called
_VARIABLE = re.compile(rf"(?<![\w\-])([A-Z][A-Z0-9_]{{1,60}})( ?[:=] ?)({_VALUE})")
_SAYS_LITTLE = frozenset("PASS KEY KEYS PIN PAT SALT PRIVATE SESSION".split())
_PAIR = re.compile(r"([\w.+\-/]{1,80})=(.*)", re.DOTALL)
_SECRET_OPTION = re.compile(rf"--?[\w.\-]{{0,80}}?{_WORD}[\w.\-]{{0,80}}", _I)
_SECRET_PAIR = re.compile(rf"([\w.+\-/]{{0,80}}?{_WORD}[\w.\-\[\]]{{0,80}}=).*", _I | re.DOTALL)
_SHELL_TEXT = re.compile(r"-[a-z]{0,4}c")
_BARE = re.compile(r"[\w@%+=:,./~-]+")
# Cc controls, Cf bidi and zero width, Cs lone surrogates, Zl and Zp separators
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_SHORT = {"\t": r"\t", "\n": r"\n", "\r": r"\r"}


def _visible(char: str) -> str:
    code = ord(char)
    if char in _SHORT:
        return _SHORT[char]
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was no UTF-8 (PEP 383)
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def safe(text: str, limit: int | None = None) -> str:
    """One line that can neither move the cursor nor change colour, at most `limit` characters."""
    cut = text if limit is None else text[: limit + 1]
    if not (cut.isascii() and cut.isprintable()):
        cut = "".join(
            _visible(each) if unicodedata.category(each) in _UNSAFE else each for each in cut
        )
    if limit is not None and len(cut) > limit:
        cut = cut[: max(limit - 1, 0)] + "…"
    return cut


def scrub(text: str) -> str:
    """The same text with every secret we know how to recognise replaced by `***`."""
    rules = (*_RULES, *_PLACES) if _MAY_STAND.search(text) else _RULES
    for pattern, instead in rules:
        text = pattern.sub(instead, text)
    return _VARIABLE.sub(_variable, text)


def looks(text: str) -> str:
    """Without those secrets alone that are known by their own look: for code, in which `token`
    and `key` name most things."""
    for pattern, instead in (_PEM, *_LOOKS):
        text = pattern.sub(instead, text)
    return text


def hides(name: str, value: str) -> bool:
    """Whether something of this name has a secret for its value. A path is none: it says where."""
    if not names_secret(name) or plain_value(value.strip("\"'")) or _PATH.fullmatch(value):
        return False
    return not weak(name) or looks_drawn(value)


def _variable(found: re.Match[str]) -> str:
    name, gap, value = found.groups()
    if gap != "=" and name in _SAYS_LITTLE:
        return found[0]  # PASS: test_x
    hidden = hides(name, value) and not value.isdecimal()
    return f"{name}{gap}{MASK}" if hidden else found[0]


def text(text: str, limit: int | None = None) -> str:
    """Free text such as a log line: without secrets, harmless."""
    # Twice: an escape may hide a word's start from the first pass, or join words for the second.
    return safe(scrub(safe(scrub(text))), limit)


def _argument(word: str, before: str) -> str:
    """One argument without its secret; `before` is the one in front of it."""
    if _SECRET_OPTION.fullmatch(before) and not word.startswith("-"):
        return MASK
    if before.startswith("-") and not word.startswith("-") and hides(before.strip("-"), word):
        return MASK
    if _SHELL_TEXT.fullmatch(before):
        return text(word)
    pair = _PAIR.fullmatch(word)
    if pair and hides(pair[1].lstrip("-+"), pair[2]):
        return text(f"{pair[1]}={MASK}")
    pair = _SECRET_PAIR.fullmatch(word)
    return text(f"{pair[1]}{MASK}" if pair else word)


def _quoted(word: str) -> str:
    if _BARE.fullmatch(word.replace(MASK, "_")):
        return word
    return "'" + word.replace("'", "'\"'\"'") + "'"


def command(argv: Sequence[str], limit: int | None = None) -> str:
    """An argument vector as a shell would need it typed, without secrets, harmless."""
    befores = ("", *argv)
    words = [_argument(word, before) for word, before in zip(argv, befores, strict=False)]
    return text(" ".join(_quoted(word) for word in words), limit)


# GOOGLE_APPLICATION_CREDENTIALS=/root/key.json says where one lies, and is none itself
_NAMES_A_FILE = re.compile(r"(?:CREDENTIALS|FILE|PATH|DIR|SOCK)(?:_|$)")
_PATH = re.compile(r"/[\w./\-]+")
_HARMLESS = frozenset({"PWD", "OLDPWD", "XAUTHORITY"})
# http_proxy=me:X@host:8080, without a scheme
_USER_AND_WORD = re.compile(r"[^\s/:@]+:[^\s/@]+@[\w.\-]+(?::\d{1,5})?(?:/.*)?")
_NAMES_A_COMMIT = re.compile(r"(?:COMMIT|SHA|HASH|REV|REVISION|UUID|ID)\d*$", _I)
_HEX_KEY = re.compile(r"[0-9a-fA-F]{32,}")
_MIXED_KEY = re.compile(
    r"(?=[^A-Z]*[A-Z])(?=[^a-z]*[a-z])(?=[^0-9]*[0-9])[A-Za-z0-9+_\-]{24,}={0,2}"
)


def secret(name: str, value: str) -> bool:
    """Whether a variable of this name with this value holds a secret: by its name, or by the look
    of the value. An empty one holds none."""
    if not value or name in _HARMLESS or (_NAMES_A_FILE.search(name) and _PATH.fullmatch(value)):
        return False
    if plain_value(value):
        return False
    pair = f"{name}={value}"
    if names_secret(name) and (looks_drawn(value) or name.upper() != "SESSION"):
        return True
    if _SECRET_PAIR.fullmatch(pair) or _USER_AND_WORD.fullmatch(value):
        return True
    if scrub(pair) != pair or scrub(value) != value:
        return True
    if _HEX_KEY.fullmatch(value):
        return _NAMES_A_COMMIT.search(name) is None
    return _MIXED_KEY.fullmatch(value) is not None


def holds_secret(argv: Sequence[str]) -> bool:
    """Whether these words hold one, so that what is shown of them cannot be run."""
    return command(argv).count(MASK) > sum(word.count(MASK) for word in argv)


def brief(argv: Sequence[str]) -> str:
    """The same within a sentence: a shell's `-c` text may be a whole program."""
    return command(argv, 100)


def typed(words: Sequence[str], inventory: str | None) -> str:
    """A command of ours to type next; it names the inventory where this run was told which."""
    named = () if inventory is None else ("-i", inventory)
    at = list(words).index("--") if "--" in words else len(words)
    return command(("fleetstop", *words[:at], *named, *words[at:]))


def words(argv: Sequence[str]) -> tuple[str, ...]:
    """An argument vector to be kept: each word as it is, unless it holds a secret."""
    befores = ("", *argv)
    pairs = [(word, _argument(word, before)) for word, before in zip(argv, befores, strict=False)]
    return tuple(word if told == safe(word) else told for word, told in pairs)
