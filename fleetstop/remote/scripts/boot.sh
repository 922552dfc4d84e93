# The far end of a fleetstop shell: POSIX sh, defined once, then one line per frame.
#   in:   NONCE VERB WORD...          a word is text without blanks; \0ooo is a byte
#   out:  raw bytes, newline, NONCE STATUS, newline
# EOF on stdin ends it. Nothing that arrives is parsed as shell again.
LC_ALL=C; export LC_ALL
lockroot=/run/lock
# Frames come in on 3: no command of ours can eat one by reading its stdin.
exec 3<&0 </dev/null

# decode WORD -> $text (may hold any byte but NUL); path WORD: the same, never read as an option
decode() { text=$(printf '%b.' "$1"); text=${text%.}; }
path() { decode "$1"; case $text in /*) ;; *) text=./$text ;; esac; }

# nap SECONDS -> 8 when it could not: a failed fork ends dash and ash, but not through `command`
nap() { { command eval 'sleep "$1"'; } 2>/dev/null || return 8; }

# number WORD -> 0 when it may be a PID that is signalled
number() { case $1 in ''|*[!0-9]*|0*|1) return 1 ;; esac; }

# same PID START -> 0 same ($state is its letter, $dead yes: not even a thread is left), 3 gone,
# 4 another process, 5 could not look.
# Forks nothing: at a full PID limit a fork fails, and that must not read as "gone".
same() {
  [ -r /proc/self/stat ] || return 5
  s=; { while IFS= read -r l || [ -n "$l" ]; do s="$s$l "; done <"/proc/$1/stat"; } 2>/dev/null
  if [ -z "$s" ]; then [ -e "/proc/$1" ] && return 5; return 3; fi
  w=$2; set -f; set -- ${s##*)}; set +f
  state=$1; dead=
  # a leader that has ended while its threads live on is a Z too (proc(5): field 20, threads)
  case $1 in Z|X) [ "${18}" -gt 1 ] || dead=yes ;; esac
  [ "${20}" = "$w" ] || return 4
}

# belongs PID SCOPE -> 0 when its cgroup lies in the scope (lxc:ID, or host: in no container)
belongs() {
  here=no; seen=no
  { while IFS= read -r l || [ -n "$l" ]; do
    [ "$seen" = out ] || seen=yes
    l=${l#*:}; l=${l#*:}
    case $2 in
      lxc:*) case $l in "/lxc/${2#lxc:}"|"/lxc/${2#lxc:}"/*) here=yes ;; esac ;;
      host) case $l in /lxc/*) seen=out ;; esac ;;
    esac
  done <"/proc/$1/cgroup"; } 2>/dev/null
  case $2 in host) [ "$seen" = yes ] ;; *) [ "$here" = yes ] ;; esac
}

# masks PID -> $ign $cgt as /proc prints them
masks() {
  ign=; cgt=
  { while read -r k v _; do
    case $k in SigIgn:) ign=$v ;; SigCgt:) cgt=$v ;; esac
  done <"/proc/$1/status"; } 2>/dev/null
}

uptime() { up=; read -r up _ </proc/uptime; }

hello() {
  set -f; s=; read -r s </proc/self/stat
  set -- ${s##*)}; set +f
  # /proc/self is the process that opens it, and the redirection is ours: no fork in between
  uptime
  printf 'pid=%s\nstart=%s\nuid=%s\nhz=%s\nuptime=%s\n' \
    "${s%% *}" "${20}" "$(id -u)" "$(getconf CLK_TCK 2>/dev/null || echo 100)" "$up"
}

# look SCOPE|pids PID... : stat, cgroup and the wanted status lines of every process in it
look() {
  uptime || return 9
  echo "uptime:$up"
  scope=$1; shift
  case $scope in
    pids) files=; for p; do files="$files /proc/$p/stat /proc/$p/cgroup"; done ;;
    host) files="/proc/[0-9]*/stat /proc/[0-9]*/cgroup" ;;
    lxc:*)
      found=$(grep -slE "^[0-9]+:[^:]*:/lxc/${scope#lxc:}(/|\$)" /proc/[0-9]*/cgroup)
      [ $? -le 2 ] || return 9
      files=
      for f in $found; do files="$files ${f%/cgroup}/stat $f"; done ;;
    *) return 2 ;;
  esac
  [ -n "$files" ] || return 0
  grep -sHa '' $files
  [ $? -le 2 ] || return 9
  grep -sHaE '^(Uid|TracerPid|NSpid|NSpgid|NSsid|SigPnd|ShdPnd|SigBlk|SigIgn|SigCgt|VmRSS):' \
    $(case $scope in host) echo "/proc/[0-9]*/status" ;; *) for f in $files; do
      case $f in */stat) echo "${f}us" ;; esac; done ;; esac)
  [ $? -le 2 ]
}

# argv PID... ; a dead leader has no cmdline of its own, its living threads (deep:PID) have
argv() {
  [ $# -gt 0 ] || return 0
  files=
  for p; do
    case $p in
      deep:*) files="$files /proc/${p#deep:}/task/[0-9]*/cmdline" ;;
      *) files="$files /proc/$p/cmdline" ;;
    esac
  done
  grep -sHa '' $files; [ $? -le 2 ]
}

# detail PID... : lines about threads, open files, I/O; then NUL records: link path, link text
detail() {
  [ $# -gt 0 ] || return 0
  lines=; files=; links=; envs=
  for p; do
    lines="$lines /proc/$p/task/[0-9]*/status"
    files="$files /proc/$p/fdinfo/[0-9]* /proc/$p/io"
    links="$links /proc/$p/fd /proc/$p/cwd"
    envs="$envs /proc/$p/environ"
  done
  grep -sHaE '^(State|SigBlk|SigPnd):' $lines; [ $? -le 2 ] || return 9
  grep -sHaE '^(pos:|flags:|wchar:)' $files; [ $? -le 2 ] || return 9
  printf '\n\0'
  find $links -maxdepth 1 -type l -printf '%p\0%l\0' 2>/dev/null
  grep -sHazE '^(RANK|LOCAL_RANK|PWD|FLEETSTOP_MARK|TORCH_ELASTIC_SHUTDOWN_TIMEOUT)=' $envs; [ $? -le 2 ]
}

# watch MS[/EVERY_MS] PID:START... : answers at once when one is no longer the same or dead, else after MS
watch() {
  left=${1%/*}; step=100; case $1 in */*) step=${1#*/} ;; esac; shift
  f=00$((step % 1000)); f=$((step / 1000)).${f#"${f%???}"}
  while :; do
    changed=
    for i; do
      state=; dead=; same "${i%%:*}" "${i#*:}"; c=$?
      case $c$dead in 0) ;; *) echo "$i $c $state"; changed=yes ;; esac
    done
    [ -n "$changed" ] && return 0
    [ "$left" -gt 0 ] || return 0
    nap "$f" || return 8
    left=$((left - step))
  done
}

# ledger files: one per run, written only by it; see core/ledger.py for what the lines mean
ledgerdir() {
  case $1 in *[!0-9a-z]*|'') return 2 ;; esac
  d=$lockroot/fleetstop.$1
  [ -L "$d" ] && return 21
  # anybody may make it before us (/run/lock is open to all): then its files are anybody's too
  [ -d "$d" ] && { [ -O "$d" ] || return 23; return 0; }
  [ "$2" = make ] || return 22
  mkdir -p "$lockroot" && mkdir -m 1777 "$d" 2>/dev/null
  [ -L "$d" ] && return 21
  [ -d "$d" ] || return 20
  [ -O "$d" ] || return 23
}

# runfile TARGET RUN : $f is there, and is a plain file
runfile() {
  ledgerdir "$1" || return
  case $2 in */*|.*|'') return 2 ;; esac
  f=$d/$2; [ -f "$f" ] && [ ! -L "$f" ] && [ -O "$f" ] || return 20
}

claim() { # target run header
  case $2 in */*|.*|'') return 2 ;; esac
  for again in again again last; do
    ledgerdir "$1" make || return
    f=$d/$2; uptime || return 20
    # a run that leaves may take the empty directory with it at this moment
    { printf 'header %s\nstamp %s\n' "$3" "$up" >>"$f"; } 2>/dev/null && break
    [ $again = again ] || return 20
  done
  uptime || return 20
  since=$up
  printf 'since %s\n' "$since" >>"$f" || return 20
  # until the clock ticks: whoever the next look does not show will then have a later `since`
  while uptime && [ "$up" = "$since" ]; do :; done
}

ledger() { # target
  uptime || return 9
  echo "uptime:$up"
  ledgerdir "$1"; case $? in 0) ;; 22) return 0 ;; *) return $? ;; esac
  # anybody may write there: a FIFO would hang, a link would show another file, a stranger's
  # file would hold the lock or say that a signal was sent
  set --; for f in "$d"/*; do [ -f "$f" ] && [ ! -L "$f" ] && [ -O "$f" ] && set -- "$@" "$f"; done
  [ $# -gt 0 ] || return 0
  grep -sHa '' "$@"
  [ $? -le 2 ]
}

stamp() { # target run
  runfile "$1" "$2" || return
  uptime && printf 'stamp %s\n' "$up" >>"$f" || return 20
}

done_() { # target run
  runfile "$1" "$2" || return
  uptime && printf 'done %s\n' "$up" >>"$f" || return 20
}

forget() { # target run...
  ledgerdir "$1" || return
  shift
  for r; do case $r in */*|.*|'') return 2 ;; esac; done
  for r; do rm -f "$d/$r"; done
  rmdir "$d" 2>/dev/null
  return 0
}

# send TARGET RUN N[@LATEST] SIGNAL LANDING CONT SCOPE {PID START IGN CGT}... ; - for a mask: any
# LATEST: uptime in whole seconds. A shell that was stalled must not signal when its client has
# given up and another run has the lock. All of them or none: every identity, membership and mask is checked, then the ledger line is
# written, then one kill. No line written, no signal sent.
send() {
  t=$1; r=$2; n=${3%@*}; sig=$4; land=$5; cont=$6; scope=$7
  case $3 in *@*) latest=${3#*@} ;; *) latest= ;; esac
  shift 7
  pids=; ids=
  while [ $# -ge 4 ]; do
    number "$1" || return 2
    same "$1" "$2"; c=$?
    [ $c = 0 ] || { echo "$1:$2 $c"; return 10; }
    [ -z "$dead" ] || { echo "$1:$2 $state"; return 10; }
    belongs "$1" "$scope" || { echo "$1:$2 scope"; return 11; }
    if [ "$3$4" != -- ]; then
      masks "$1"
      { [ "$3" = - ] || [ "$ign" = "$3" ]; } && { [ "$4" = - ] || [ "$cgt" = "$4" ]; } || {
        echo "$1:$2 masks $ign $cgt"; return 12
      }
    fi
    pids="$pids $1"; ids="$ids $1:$2"; shift 4
  done
  [ -n "$pids" ] && [ $# = 0 ] || return 2
  runfile "$t" "$r"; c=$?
  case $c in 0) ;; 21) return 21 ;; *) return 20 ;; esac
  uptime || return 20
  [ -z "$latest" ] || [ "${up%.*}" -le "$latest" ] || return 13
  printf 'send %s %s %s %s%s\n' "$n" "$sig" "$land" "$up" "$ids" >>"$f" || return 20
  kill -s "$sig" $pids; k=$?
  [ "$cont" = cont ] && kill -s CONT $pids
  echo "sent $up $k"
}

# children PID -> $kids, as PID:START
children() {
  kids=
  for k in /proc/"$1"/task/*/children; do
    c=; { read -r c <"$k"; } 2>/dev/null
    for c in $c; do
      s=; { while IFS= read -r l || [ -n "$l" ]; do s="$s$l "; done <"/proc/$c/stat"; } 2>/dev/null
      boss=$1; set -f; set -- ${s##*)}; set +f
      [ "$2" = "$boss" ] && kids="$kids $c:${20}"
      set -- "$boss"
    done
  done
}

# stuck PID START : which process's files the children of this given-up shell hang on
stuck() {
  number "$1" || return 2
  same "$1" "$2" || return 0
  children "$1"
  links=; for i in $kids; do links="$links /proc/${i%%:*}/fd"; done
  [ -n "$links" ] || return 0
  find $links -maxdepth 1 -lname '/proc/[0-9]*' -printf '%l\n' 2>/dev/null
}

# endtree PID START : KILL a given-up shell of ours and what hangs below it; forks nothing
endtree() {
  number "$1" || return 2
  todo=$1:$2
  while [ -n "$todo" ]; do
    next=
    for i in $todo; do
      same "${i%%:*}" "${i#*:}" || continue
      children "${i%%:*}"
      kill -s KILL "${i%%:*}"
      next="$next$kids"
    done
    todo=$next
  done
}

frozen() { # vmid : prints what each freezer file says
  for f in /sys/fs/cgroup/lxc/$1/cgroup.events /sys/fs/cgroup/lxc/$1/ns/cgroup.events \
    /sys/fs/cgroup/unified/lxc/$1/cgroup.events /sys/fs/cgroup/unified/lxc/$1/ns/cgroup.events; do
    [ -r "$f" ] && grep -H '^frozen' "$f"
  done
  for f in /sys/fs/cgroup/freezer/lxc/$1/freezer.state /sys/fs/cgroup/freezer/lxc/$1/ns/freezer.state; do
    [ -r "$f" ] && grep -H '' "$f"
  done
  return 0
}

# gpus: nvidia-smi in the background, answers in files, polled; it may hang in D for good
gpus() {
  command -v nvidia-smi >/dev/null 2>&1 || return 30
  t=$(mktemp -d) || return 20
  ( nvidia-smi --query-gpu=index,uuid,temperature.gpu,memory.used,memory.total --format=csv,noheader,nounits \
      >"$t/g" 2>&1 </dev/null; echo $? >"$t/gs"
    nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory --format=csv,noheader,nounits \
      >"$t/a" 2>&1 </dev/null; echo $? >"$t/as"
    echo >"$t/ready"; [ ! -f "$t/late" ] || rm -rf "$t" ) >/dev/null 2>&1 3<&- &
  left=${1:-8000}
  until [ -f "$t/ready" ]; do
    [ "$left" -gt 0 ] || { echo >"$t/late"; return 31; }
    nap 0.05 || return 8
    left=$((left - 50))
  done
  read -r gs <"$t/gs"; read -r as <"$t/as"
  echo "gpus $gs"; cat "$t/g"; printf '\n\0'; echo "apps $as"; cat "$t/a"; rm -rf "$t"
}

# bounded MS COMMAND... : its first 64 KiB of output; 32 when it is not done by then (a hung file
# system, a bus that does not answer): it is left behind, and ends by itself or not
bounded() {
  t=$(mktemp -d) || return 20
  left=$1; step=20; shift
  ( "$@" 2>/dev/null </dev/null | head -c 65536 >"$t/o"; echo >"$t/ready"
    [ ! -f "$t/late" ] || rm -rf "$t" ) >/dev/null 2>&1 3<&- &
  until [ -f "$t/ready" ]; do
    [ "$left" -gt 0 ] || { echo >"$t/late"; return 32; }
    # quick at first: a file is read in a moment
    case $step in 100) nap 0.1 || return 8 ;; *) nap 0.02 || return 8; step=$((step + 20)) ;; esac
    left=$((left - step))
  done
  cat "$t/o"; rm -rf "$t"
}
# source PATTERN... : NUL, path, newline and head of each plain file they name; a FIFO would hang
heads() {
  for f; do [ -f "$f" ] && [ -r "$f" ] && { printf '\0%s\n' "$f"; head -c 16384 -- "$f"; }; done
}
source_() {
  # a pattern may hold blanks: it is matched, never split
  IFS=; files=
  for p; do path "$p"; files=$files$text:; done
  IFS=:; set -- $files; unset IFS
  bounded 2000 heads "$@"
}
# unit NAME PROPERTIES : what systemd says of a service
unit() {
  command -v systemctl >/dev/null 2>&1 || return 33
  bounded 3000 systemctl show -p "$2" -- "$1"
}

# files of the job: sizes and names as NUL records, then the first and last bytes when asked
list() { # dir
  path "$1"; date +%s.%N
  [ -d "$text" ] || { [ -e "$text" ] && return 41; return 40; }
  ( cd -P -- "$text" && pwd -P && printf '\0' ) || return 41
  find "$text/" -maxdepth 5 \( -type f -o -type d \) -printf '%y\0%i\0%s\0%T@\0%p\0'
}
ends() { path "$1"; head -c "${2:-64}" -- "$text" && tail -c 1024 -- "$text"; }
log() { # file : now, mtime, size, then the tail
  path "$1"; [ -f "$text" ] || return 40
  date +%s.%N; find "$text" -printf '%T@ %s\n'; tail -c 8192 -- "$text"
}
# in the C locale procps turns what is not ASCII into question marks before it matches
pgrep_() { decode "$1"; LC_ALL=C.UTF-8 pgrep -f -- "$text"; }
# panes SESSION : the PID of the first process in each pane of it, by exact name
panes() { decode "$1"; tmux list-panes -s -t "=$text" -F '#{pane_pid}'; }
pidfile() { path "$1"; [ -f "$text" ] || return 40; head -c 64 -- "$text"; }

echo; echo ready
while IFS= read -r line <&3; do
  set -f; set -- $line; set +f
  [ $# -ge 2 ] || continue
  nonce=$1; verb=$2; shift 2
  case $verb in
    hello|look|argv|detail|watch|claim|ledger|stamp|forget|send|stuck|endtree|frozen|gpus|list|ends|log|pidfile|panes|unit)
      # `command`: what would end the shell (a fork that fails, a shift too far) ends the verb
      command eval '"$verb" "$@"' ;;
    done|pgrep|source) command eval '"${verb}_" "$@"' ;;
    *) false ;;
  esac
  status=$?
  printf '\n%s %s\n' "$nonce" "$status"
done
