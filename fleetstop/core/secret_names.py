"""Which names say that a secret lies behind them: of variables, and of files. Reads no file.

A name is taken apart at `_`, `-` and `.`, and each part is known whole or by its end: `MYPASS` and
`DB_PASS` hold a password, `COMPASS`, `PASSES` and `PASS_RATE` none.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

_I = re.IGNORECASE
# A part that is one whole, and one that may be the end of a longer word.
_WHOLE = (
    r"pw|pwd|o?auth2?|creds?|credentials?|bearer|jwts?|pin|cookies?|dsn|pat|pats|private|session"
    r"|psk|otp|totp|salt|hmac|mnemonic|keys?|secrets?|tokens?|webhooks?|proxy_?auth"
)
_ENDS = (
    r"[a-z]{0,30}(?:token|password|passwd|passwort|passphrase|passcode|secret|creds|jwt|cookie"
    r"|apikeys?|dsn|webhook)"
    r"|(?:my|db|pg|ssh|root|admin|user|ldap|bind|mysql|redis|smtp|mail|ftp)?(?:pwd?|pw)"
)
# compass, bypass, … and monkey, hotkey, … end so too, without any secret
_UNLESS = (
    r"(?!com|by|tres|encom|sur|over|under)[a-z]{0,30}pass"
    r"|(?!mon|hot|tur|don|whis|joc|hoc|mas)[a-z]{0,30}keys?"
)
# What may stand behind it and leaves it what it is: PASSWORD_OLD, TOKEN_2, SLACK_WEBHOOK_URL.
_REST = (
    r"(?:id|file|path|value|json|b64|base64|hex|raw|str|string|text|plain|header|old|new|prod|dev"
    r"|test|staging|main|backup|url|uri|code|phrase|[0-9]{1,4})"
)
_NAME = re.compile(
    rf"(?P<front>(?:[a-z0-9]+[_.\-])*)(?P<part>{_WHOLE}|{_ENDS}|{_UNLESS})[0-9]{{0,4}}"
    rf"(?P<rest>(?:[_.\-]{_REST})*)",
    _I,
)
# Behind these words they name something else: pins of CPUs, a desktop's session, the column to sort
# by, what separates sentences for a tokenizer, the second pass over the data.
_OTHERWISE = {
    part: re.compile(rf"(?:.*[_.\-])?(?:{fronts})[_.\-]", _I)
    for part, fronts in {
        "pin": "cpu|gpu|mpi|omp|kmp|numa|cores?|threads?|mem|memory",
        "session": "xdg|desktop|dbus|tmux|screen|byobu|gdm|shell|term|iterm|wandb|zellij",
        "key": "sort|group|order|primary|foreign|cache|partition|index|dict|lookup|join|search"
        "|metric|label|feature|input|output|image|target|column",
        "token": "pad|eos|bos|unk|sep|cls|mask",
        "pass": "first|second|two|one|multi|single|forward|backward|num|n",
    }.items()
}
_SECRET_TOKENS = re.compile(r"(?:.*[_.\-])?(?:api|access|auth|bot|hf|github|refresh)[_.\-]", _I)
_ADDRESS = re.compile(r"[_.\-](?:url|uri)", _I)
# A switch, a count, or the mark of a tokenizer is nobody's secret, whatever it is called.
_PLAIN = re.compile(
    r"true|false|yes|no|on|off|none|null|enabled?|disabled?|[0-9]{1,2}|<[|/]?\w{1,20}[|]?>"
    r"|\[[A-Z_]{1,12}\]",
    _I,
)
_DRAWN = re.compile(r"(?=\D*\d)(?=[^a-z]*[a-z])[\w.+=\-]{12,}", _I)
# Alone, these say little: most sessions are tmux's, and `--private` is a switch.
_WEAK = frozenset({"session", "private", "pat"})


def names_secret(name: str) -> bool:
    """Whether a variable, key or option of this name holds one, as far as the name tells."""
    found = _NAME.fullmatch(name)
    if found is None:
        return False
    front, part, rest = found["front"], found["part"].lower(), found["rest"]
    if part == "pwd" and not front:
        return False  # the directory that a shell is in
    if part == "tokens":
        return _SECRET_TOKENS.fullmatch(front) is not None
    otherwise = _OTHERWISE.get(part.removesuffix("s") if part == "keys" else part)
    if otherwise is not None and otherwise.fullmatch(front):
        return False
    if _ADDRESS.search(rest):  # an AUTH_URL is an address; a WEBHOOK_URL lets in who has it
        return part.endswith(("webhook", "webhooks"))
    return True


def plain_value(value: str) -> bool:
    """A switch or a count: `USE_AUTH=1`, `PASS=3`, `PIN=off`; or `eos_token=</s>`."""
    return _PLAIN.fullmatch(value) is not None


def weak(name: str) -> bool:
    """Whether the name says so little that the value has to look like one, too."""
    found = _NAME.fullmatch(name)
    return found is not None and not found["front"] and found["part"].lower() in _WEAK


def looks_drawn(value: str) -> bool:
    """Whether it looks as if a machine had drawn it: letters and digits, and long."""
    return _DRAWN.fullmatch(value) is not None


# Files that hold them, as patterns for a name; with / at the end for a directory on the way, with
# ! in front for what is none. The last that fits counts. Capital letters make no difference.
SECRET_FILES = (
    *(".env", ".env.*", "*.env", ".envrc"),
    *("!.env.example", "!.env.sample", "!.env.template", "!.env.dist", "!example.env"),
    *("*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk"),
    *("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk"),
    *("credentials", "!credentials/", "*credentials.json", "credentials.y*ml", "credentials.toml"),
    *("credentials.ini", "credentials.csv", "credentials.txt", "credentials.cfg"),
    *("client_secret*.json", "service-account*.json", "service_account*.json"),
    *("secrets.yaml", "secrets.yml", "secrets.json", "secrets.toml", "secrets.ini", ".secrets"),
    *(".netrc", "_netrc", ".pgpass", ".my.cnf", ".htpasswd", ".git-credentials", ".npmrc"),
    *(".pypirc", ".dockercfg", ".vault-token", "kubeconfig", ".boto", ".s3cfg", "kaggle.json"),
    *(".aws/", ".ssh/", ".gnupg/", ".azure/", ".kube/", ".docker/", ".gcloud/", ".huggingface/"),
)


def may_hold_secrets(path: str) -> bool:
    """By its name, of a file; by its name and / at the end, of a directory. Its way counts too."""
    *above, last = path.casefold().split("/")
    if any(_fits(f"{each}/") for each in above):
        return True
    return bool(last) and _fits(last)


def _fits(name: str) -> bool:
    said = False
    for pattern in SECRET_FILES:
        if fnmatchcase(name, pattern.removeprefix("!")):
            said = not pattern.startswith("!")
    return said
