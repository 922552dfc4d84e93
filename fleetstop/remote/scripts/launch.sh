# Starts one trainer where there is no Python, as nearly as supervise.py does as a shell can.
#
#     sh .../launch.sh SPEC
#
# POSIX sh (dash, bash, busybox ash); setsid, mkfifo; for another user setpriv, runuser or su. SPEC
# has a line `NAME VALUE` for each, the value as printf's %b reads it, without a space (\040), in
# this order (core/launching/shell_spec.py writes it; it holds secrets, so it is 0600):
#
#     status mark uid gid nice   once; mark: letters, digits, . _ - only
#     group GID                  for each; limit NAME:SOFT:HARD, -1 is infinity
#     cwd umask log              once (umask in octal; no log line: /dev/null)
#     env NAME=VALUE, arg WORD   for each; the first word is the program
#
# One line on stdout: `started PID START` (status 0) or `failed SENTENCE` (1). The state file is that
# of supervise.py, and has "approximate", a list of sentences: what a shell cannot do, or tell.
# - An inherited ignore is undone by `env --default-signal` (coreutils 8.31) only; a mask never.
# - 128 + N is the end by signal N, or an exit with that number: "exit" and "signal" both say so.
# - What the trainer leaves behind is not waited for. Limits need prlimit, but for a few.
# - Variables that a shell keeps to itself, or cannot name, are not set; bash adds `_` and SHLVL.
# The program runs only when its PID is on record, and not at all if who started it is gone by then.

set -f
spec=$2
case $1 in begin | supervise | become) part=$1 ;; *) part=begin spec=$1 ;; esac

decode() { text=$(printf '%b.' "$1"); text=${text%.}; }
pause() { sleep 0.1 2>/dev/null || sleep 1; }
# born PID -> $start, field 22 of its stat; the name before may hold anything
born() {
  start=
  { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
  set -- ${line##*)}
  start=${20} own_nice=${17}
}
# quoted SENTENCE -> $text, for JSON
quoted() {
  text= rest=$1
  while [ -n "$rest" ]; do
    first=${rest%"${rest#?}"} rest=${rest#?}
    case $first in
    \\ | \") text=$text\\$first ;;
    [[:cntrl:]]) text="$text " ;;
    *) text=$text$first ;;
    esac
  done
}
now() { date -u +%Y-%m-%dT%H:%M:%S.000+00:00; }
# by rename; $trainer, $ended, $exit, $signal, $failed, $doubts are JSON
write_state() {
  printf '{"schema": 1, "mark": "%s", "supervisor": %s, "trainer": %s, "started_at": "%s", ' \
    "$mark" "$supervisor" "$trainer" "$began" >"$status.new" &&
    printf '"ended_at": %s, "exit": %s, "signal": %s, "failed": %s, "approximate": [%s]}\n' \
      "$ended" "$exit" "$signal" "$failed" "$doubts" >>"$status.new" &&
    mv -f -- "$status.new" "$status"
}
doubt() { quoted "$1"; doubts=${doubts:+$doubts, }\"$text\"; }
# what is root's of the spec
read_spec() {
  groups= limits= uid= gid= nice= mark= status=
  while read -r name value; do
    decode "$value"
    case $name in
    status) status=$text ;;
    mark) mark=$text ;;
    uid) uid=$text ;;
    gid) gid=$text ;;
    nice) nice=$text ;;
    group) groups="$groups $text" ;;
    limit) limits="$limits $text" ;;
    esac
  done <"$spec" || return 1
  case $status$mark in /*) ;; *) return 1 ;; esac
  case $mark in *[!A-Za-z0-9._-]*) return 1 ;; esac
  case $uid in '' | *[!0-9]*) return 1 ;; esac
  case $gid in '' | *[!0-9]*) return 1 ;; esac
}

# -- begin: waits until the trainer stands ready, writes the record, lets it go --------------------

end_begin() { rm -f -- "$status.go" "$status.said" "$status.new"; echo "$1"; exit "$2"; }
not_started() {
  exec 5>&-
  trainer=null exit=null signal=null ended=\"$(now)\"
  quoted "$1"
  failed=\"$text\"
  [ -z "$supervisor" ] || write_state 2>/dev/null
  set -- $1
  end_begin "failed $*" 1
}
begin() {
  supervisor= doubts=
  [ -r "$spec" ] && read_spec || { echo "failed cannot make out $spec"; exit 1; }
  began=$(now) supervisor=null
  command -v setsid >/dev/null 2>&1 || not_started "there is no setsid"
  rm -f -- "$status.go" "$status.said"
  said=$( { mkfifo -m 600 "$status.go" && : >"$status.said"; } 2>&1) ||
    { supervisor=; not_started "cannot write $status: ${said##*: }"; }
  exec 5<>"$status.go"
  set -- env -i
  ! env --default-signal true 2>/dev/null || set -- "$@" --default-signal
  # the first leads a session, so the second has to fork, and returns: `setsid -f` is not everywhere
  "$@" PATH="$PATH" setsid setsid sh "$0" supervise "$spec" </dev/null >/dev/null 2>&1 5>&-
  tries=0
  until [ -s "$status.said" ] && read -r word rest <"$status.said"; do
    tries=$((tries + 1))
    [ $tries -le 300 ] || not_started "nothing was heard of it within 30 s"
    pause
  done
  case $word in
  ready) set -- $rest ;;
  *) not_started "$rest" ;;
  esac
  pid=$1 supervised=$2 ignored=$3
  shift 3
  born "$supervised" && supervisor="{\"pid\": $supervised, \"start\": $start}"
  born "$pid" || not_started "it ended before it ran"
  trainer="{\"pid\": $pid, \"start\": $start}" ended=null exit=null signal=null failed=null
  doubt "a shell recorded this: what the trainer leaves behind is not waited for"
  [ "$ignored" = 0 ] || doubt "it ignores signals, as whoever started it did: $ignored"
  [ $# = 0 ] || doubt "a shell cannot set these variables: $*"
  [ "$own_nice" = "$nice" ] || doubt "its nice is $own_nice, not $nice"
  write_state 2>/dev/null || { supervisor=; not_started "cannot write $status"; }
  echo go >&5
  exec 5>&-
  pause
  pause
  case $(cat "$status") in
  *'"exit": 12'[67]*) end_begin "failed its program cannot be run, or ended at once with 126 or 127" 1 ;;
  esac
  end_begin "started $pid $start" 0
}

# -- supervise: in a session of its own, waits for the trainer in the foreground, as with & it would
# ignore INT and QUIT ------------------------------------------------------------------------------

supervise() {
  trap : HUP INT QUIT TERM # not '': what it starts would inherit that
  cd / && umask 022
  read_spec
  born $$
  set -- setsid
  [ "$nice" = "$own_nice" ] || set -- nice -n $((nice - own_nice)) "$@"
  "$@" sh "$0" become "$spec" $$
  code=$?
  [ ! -e "$status.said" ] || [ -s "$status.said" ] ||
    echo "failed it ended with $code before it ran" >"$status.said"
  { IFS= read -r line <"$status"; } 2>/dev/null || exit
  case $line in *'"trainer": {'*) ;; *) exit ;; esac
  exit=$code signal=null
  if [ "$code" -gt 128 ] && name=$(kill -l $((code - 128)) 2>/dev/null); then
    signal=\"${name#SIG}\"
  fi
  # the record as begin wrote it, with its end
  head=${line%%\"ended_at\"*} doubts=${line##*\"approximate\": } doubts=${doubts%\}}
  case $signal in null) ;; *)
    doubts="${doubts%]}, \"ended by ${name#SIG}, or exit $code: a shell cannot tell which\"]" ;;
  esac
  printf '%s"ended_at": "%s", "exit": %s, "signal": %s, "failed": null, "approximate": %s}\n' \
    "$head" "$(now)" "$exit" "$signal" "$doubts" >"$status.end" && mv -f -- "$status.end" "$status"
}

# -- become: the trainer's own process, or its parent where only su can change the user -------------

# As the trainer's user, which may not read the spec: root has opened it. After `ready` it waits for
# `go`, and hears the end of the file where nobody is left to say it.
INNER='
set -f
say() { printf "%s\n" "$1" >&3; exit 126; }
unset HOME SHELL USER LOGNAME MAIL PATH PWD OLDPWD SHLVL
left=
set --
while IFS=" " read -r name value; do
  text=$(printf "%b." "$value") text=${text%.}
  case $name in
  cwd) cd -- "$text" 2>/dev/null || say "failed cannot change to $text"; unset PWD OLDPWD ;;
  umask) mask=$text ;;
  log) umask 022; { command exec 1>>"$text"; } 2>/dev/null || say "failed cannot append to $text" ;;
  mark) FLEETSTOP_MARK=$text; export FLEETSTOP_MARK ;;
  arg) set -- "$@" "$text" ;;
  env)
    case ${text%%=*} in
    _) ;;
    "" | [0-9]* | *[!A-Za-z0-9_]* | UID | EUID | PPID | GROUPS | SHELLOPTS | BASHOPTS | \
      BASH_VERSINFO | OPTIND) left="$left ${text%%=*}" ;;
    *) export "$text" ;;
    esac ;;
  esac
done
command -v -- "$1" >/dev/null || say "failed cannot run $1: no such program"
umask "$mask"
ignored=0
while read -r name value; do case $name in SigIgn:) ignored=$value; break ;; esac; done </proc/$$/status
case $ignored in *[!0]*) ;; *) ignored=0 ;; esac
printf "ready %s %s %s %s\n" $$ "$SUPERVISOR" "$ignored" "$left" >&3
unset SUPERVISOR name value text mask left
IFS= read -r go <&4 && [ "$go" = go ] || exit 126
unset go ignored
exec "$@" </dev/null 2>&1 3>&- 4<&-
'

set_limit() { # NAME SOFT HARD
  soft=$2 hard=$3
  [ "$soft" != -1 ] || soft=unlimited
  [ "$hard" != -1 ] || hard=unlimited
  if command -v prlimit >/dev/null 2>&1; then
    prlimit --pid $$ "--$(echo "$1" | tr A-Z a-z)=$soft:$hard" 2>/dev/null
    return
  fi
  case $1 in NOFILE) letter=n ;; CORE) letter=c ;; *) return 1 ;; esac
  case $letter$soft$hard in c00 | n* | cunlimitedunlimited) ;; *) return 1 ;; esac
  ulimit -S$letter "$soft" 2>/dev/null && ulimit -H$letter "$hard" 2>/dev/null
}
# as SCRIPT -> runs it as the trainer's user
as_user() {
  same=$(id -G | tr ' ' '\n' | sort -nu | tr '\n' ' ')
  want=$(printf '%s\n' $gid $groups | sort -nu | tr '\n' ' ')
  [ "$(id -u)/$(id -g)/$same" != "$uid/$gid/$want" ] || exec sh -c "$1"
  text=$1
  set -- setpriv --reuid "$uid" --regid "$gid"
  if [ -n "$groups" ]; then
    set -- "$@" --groups "$(printf '%s,' $groups | sed 's/,$//')"
  else
    set -- "$@" --clear-groups
  fi
  ! "$@" true 2>/dev/null || exec "$@" sh -c "$text"
  while IFS=: read -r name _ number _; do
    [ "$number" = "$uid" ] && break
    name=
  done </etc/passwd
  [ -n "$name" ] || { echo "failed user $uid has no name, and there is no setpriv" >&3; exit 126; }
  ! command -v runuser >/dev/null 2>&1 || exec runuser -u "$name" -- sh -c "$text"
  ! command -v su >/dev/null 2>&1 || exec su -m -s /bin/sh "$name" -c "$text"
  echo "failed cannot become user $uid: there is no setpriv, runuser or su" >&3
  exit 126
}
become() {
  read_spec
  exec 3>>"$status.said" 4<"$status.go" <"$spec"
  for each in $limits; do
    rest=${each#*:}
    set_limit "${each%%:*}" "${rest%%:*}" "${rest##*:}" ||
      { echo "failed cannot set the limit ${each%%:*} to ${rest%%:*}:${rest##*:}" >&3; exit 126; }
  done
  export SUPERVISOR="$1"
  as_user "$INNER"
}

case $part in
begin) begin ;;
supervise) supervise ;;
become) become "$3" ;;
esac
