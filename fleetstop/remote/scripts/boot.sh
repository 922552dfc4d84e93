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
  # hidepid (proc(5)): then other people's processes cannot even be counted
  hidden=; [ -r /proc/1/stat ] || hidden=yes
  printf 'pid=%s\nstart=%s\nuid=%s\nhz=%s\nuptime=%s\nhidden=%s\n' \
    "${s%% *}" "${20}" "$(id -u)" "$(getconf CLK_TCK 2>/dev/null || echo 100)" "$up" "$hidden"
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

# detail PID... : lines about threads, open files, I/O, where it waits; then NUL records: link path,
# link text. deep:PID is a dead leader, whose files and environment a living thread still shows
# (in a second directory of the same threads: one is enough).
detail() {
  [ $# -gt 0 ] || return 0
  lines=; links=; envs=
  for p; do
    case $p in
      deep:*)
        p=${p#deep:}; t=/proc/$p
        for t in /proc/"$p"/task/[0-9]*; do [ "${t##*/}" = "$p" ] || break; done ;;
      *) t=/proc/$p ;;
    esac
    lines="$lines /proc/$p/task/[0-9]*/status $t/fdinfo/[0-9]* /proc/$p/io $t/wchan $t/syscall"
    links="$links $t/fd $t/cwd"
    envs="$envs $t/environ"
  done
  # wchan is one bare word, syscall `running` or numbers (proc(5)); nothing else here is
  grep -sHaE '^(State:|SigBlk:|SigPnd:|voluntary_ctxt|pos:|flags:|[rw]char:|[A-Za-z0-9_.]+$|-?[0-9]+ 0x)' \
    $lines; [ $? -le 2 ] || return 9
  printf '\n\0'
  find $links -maxdepth 1 -type l -printf '%p\0%l\0' 2>/dev/null
  grep -sHazE '^(RANK|LOCAL_RANK|LOCAL_WORLD_SIZE|PWD|FLEETSTOP_MARK|TORCH_ELASTIC_SHUTDOWN_TIMEOUT)=' $envs; [ $? -le 2 ]
}

# origin PID... : how each was started. Lines: stat, status, limits, the maps of its ids, the flags
# of fds 0-2, and the size of its environ (`N PATH`; what is not ended by NUL was cut). Then NUL
# records: link path, text, type of what it leads to; then argv and environ, byte for byte.
# deep:PID as for detail. /proc/self/ns/user is ours: where it is another, ids are to be mapped.
origin() {
  [ $# -gt 0 ] || return 0
  lines=; links=; words=; envs=
  for p; do
    t=/proc/$p
    case $p in
      deep:*)
        p=${p#deep:}; t=/proc/$p
        for t in /proc/"$p"/task/[0-9]*; do [ "${t##*/}" = "$p" ] || break; done ;;
    esac
    number "$p" || [ "$p" = 1 ] || return 2
    lines="$lines $t/stat $t/status $t/limits /proc/$p/uid_map /proc/$p/gid_map"
    lines="$lines $t/fdinfo/0 $t/fdinfo/1 $t/fdinfo/2"
    links="$links $t/cwd $t/exe $t/fd/0 $t/fd/1 $t/fd/2 $t/ns/user"
    words="$words $t/cmdline $t/environ"; envs="$envs $t/environ"
  done
  grep -sHa '' $lines; [ $? -le 2 ] || return 9
  wc -c $envs 2>/dev/null
  printf '\n\0'
  find /proc/self/ns/user $links -maxdepth 0 -type l -printf '%p\0%l\0%Y\0' 2>/dev/null
  grep -sHaz '' $words; [ $? -le 2 ]
}

# watch MS[/EVERY_MS] PID:START... : answers at once when one is no longer the same or dead, else after MS
# Once a second each is read in full; in between one that has its stdout open is alive (whoever
# exits closes it first; the link is not followed, it may lead to a network that hangs).
watch() {
  left=${1%/*}; step=100; case $1 in */*) step=${1#*/} ;; esac; shift
  f=00$((step % 1000)); f=$((step / 1000)).${f#"${f%???}"}
  full=0
  while :; do
    changed=
    for i; do
      [ "$full" -gt 0 ] && [ -L "/proc/${i%%:*}/fd/1" ] && continue
      state=; dead=; same "${i%%:*}" "${i#*:}"; c=$?
      case $c$dead in 0) ;; *) echo "$i $c $state"; changed=yes ;; esac
    done
    [ -n "$changed" ] && return 0
    [ "$left" -gt 0 ] || return 0
    [ "$full" -gt 0 ] || full=1000
    nap "$f" || return 8
    left=$((left - step)); full=$((full - step))
  done
}

# ledger files: one per run, written only by it; see core/ledger.py for what the lines mean.
# Whoever comes first makes the directory (/run/lock is open to all), and others work in it too:
# sticky, so that nobody but its owner could remove our lines. What strangers write there can make
# us refuse or wait, never send. Root does not rest on a stranger's directory: it takes it over.
ledgerdir() {
  case $1 in *[!0-9a-z]*|'') return 2 ;; esac
  d=$lockroot/fleetstop.$1
  [ -L "$d" ] && return 21
  [ -d "$d" ] || {
    [ "$2" = make ] || return 22
    mkdir -p "$lockroot" && mkdir -m 1777 "$d" 2>/dev/null
  }
  [ -L "$d" ] && return 21
  [ -d "$d" ] || return 20
  [ -O "$d" ] && return 0
  [ "$2" = make ] && chown -h 0:0 "$d" 2>/dev/null && [ ! -L "$d" ] && [ -O "$d" ] &&
    chmod 1777 "$d" && return 0
  [ -k "$d" ] || return 23
}

# runfile TARGET RUN : $f is there, and is a plain file
runfile() {
  ledgerdir "$1" || return
  case $2 in */*|.*|'') return 2 ;; esac
  f=$d/$2; [ -f "$f" ] && [ ! -L "$f" ] && [ -O "$f" ] || return 20
}

# claim TARGET RUN HEADER [BROKEN] : the run BROKEN holds the lock no more by what it claimed up to now
claim() {
  for r in "$2" ${4+"$4"}; do case $r in */*|.*|'') return 2 ;; esac; done
  for again in again again last; do
    ledgerdir "$1" make || return
    f=$d/$2; uptime || return 20
    if [ -e "$f" ] || [ -L "$f" ]; then
      runfile "$1" "$2" && printf 'header %s\nstamp %s\n' "$3" "$up" >>"$f" && break
    else
      # O_EXCL: nobody can have put a link there. All must be able to read it: it is their lock too
      umask 022; set -C
      { printf 'header %s\nstamp %s\n' "$3" "$up" >"$f"; } 2>/dev/null; c=$?
      set +C
      [ $c = 0 ] && break
    fi
    # a run that leaves may take the empty directory with it at this moment
    [ $again = again ] || return 20
  done
  uptime || return 20
  [ $# -lt 4 ] || printf 'break %s %s\n' "$up" "$4" >>"$f" || return 20
  since=$up
  printf 'since %s\n' "$since" >>"$f" || return 20
  # until the clock ticks: whoever the next look does not show will then have a later `since`
  while uptime && [ "$up" = "$since" ]; do :; done
}

claimable() { # target run : what claim would refuse, as far as looking tells; changes nothing
  case $2 in */*|.*|'') return 2 ;; esac
  ledgerdir "$1"; c=$?
  case $c in
    0) p=$d ;;
    22)
      [ -e "$d" ] && return 20
      p=$lockroot
      until [ -e "$p" ]; do p=${p%/*}; p=${p:-/}; done
      ;;
    *) return $c ;;
  esac
  [ -d "$p" ] && [ -w "$p" ] && [ -x "$p" ] || return 20
}

ledger() { # target
  uptime || return 9
  echo "uptime:$up"
  # what the time of day is between two uptimes: a file's time is compared with a signal's by it
  n=$(date +%s.%N) && uptime && echo "wall:$n $up"
  ledgerdir "$1"; case $? in 0) ;; 22) return 0 ;; *) return $? ;; esac
  # anybody may write there: a FIFO would hang, a link would show another file. A stranger's plain
  # file is believed: that he holds the lock, that he has sent a signal; so it must be readable
  set --
  for f in "$d"/*; do
    [ -f "$f" ] && [ ! -L "$f" ] || continue
    # a run that leaves may take its file with it between two questions
    [ -r "$f" ] || { [ -e "$f" ] || continue; return 24; }
    set -- "$@" "$f"
  done
  [ $# -gt 0 ] || return 0
  # a long run has thousands of stamps: only those of the last half minute are a sign of life
  n=${up%.*}; live=$((n + 1)); k=32
  while [ $k -gt 0 ]; do k=$((k - 1)); live="$live|$((n - k))"; done
  grep -sHaE "^(stamp ($live)[.]|[^s]|s[^t])" "$@"
  [ $? -le 2 ]
}

stamp() { # target run [latest] : a stamp that comes late must not bring an old claim to life
  runfile "$1" "$2" || return
  uptime || return 20
  [ -z "$3" ] || [ "${up%.*}" -le "$3" ] || return 13
  printf 'stamp %s\n' "$up" >>"$f" || return 20
  echo "$up"
}

done_() { # target run
  runfile "$1" "$2" || return
  uptime && printf 'done %s\n' "$up" >>"$f" || return 20
}

forget() { # target run...
  ledgerdir "$1" || return
  shift
  for r; do case $r in */*|.*|'') return 2 ;; esac; done
  for r; do rm -f "$d/$r" 2>/dev/null; done
  rmdir "$d" 2>/dev/null
  return 0
}

# check SCOPE|- {PID START IGN CGT}... -> $pids $ids; - for a mask: any; - for the scope: all is in it;
# +CGT: one that is only to be in the line
check() {
  scope=$1; shift
  pids=; ids=
  while [ $# -ge 4 ]; do
    number "$1" || return 2
    same "$1" "$2"; c=$?
    [ $c = 0 ] || { echo "$1:$2 $c"; return 10; }
    [ -z "$dead" ] || { echo "$1:$2 $state"; return 10; }
    [ "$scope" = - ] || belongs "$1" "$scope" || { echo "$1:$2 scope"; return 11; }
    want=${4#+}
    if [ "$3$want" != -- ]; then
      masks "$1"
      { [ "$3" = - ] || [ "$ign" = "$3" ]; } && { [ "$want" = - ] || [ "$cgt" = "$want" ]; } || {
        echo "$1:$2 masks $ign $cgt"; return 12
      }
    fi
    # who hears it from the recipient stands in the line, and gets no signal of ours
    case $4 in +*) ;; *) pids="$pids $1" ;; esac
    ids="$ids $1:$2"; shift 4
  done
  [ -n "$pids" ] && [ $# = 0 ] || return 2
}

# note TARGET RUN N[@LATEST] SIGNAL LANDING CONT SCOPE {PID START IGN CGT}... : all of a send but
# its kill, which another shell has the right to do; or for an ask that is none (RUN, TOUCH, KEYS). LATEST: uptime in whole seconds. A shell that
# was stalled must not signal when its client has given up and another run has the lock.
note() {
  t=$1; r=$2; n=${3%@*}; sig=$4; land=$5; cont=$6; scope=$7
  case $sig$verb in RUNsend|TOUCHsend|KEYSsend) return 2 ;; esac
  case $3 in *@*) latest=${3#*@} ;; *) latest= ;; esac
  shift 7
  check "$scope" "$@" || return
  [ "$verb" = note ] || may || return
  runfile "$t" "$r"; c=$?
  case $c in 0) ;; 21) return 21 ;; *) return 20 ;; esac
  uptime || return 20
  [ -z "$latest" ] || [ "${up%.*}" -le "$latest" ] || return 13
  printf 'send %s %s %s %s%s\n' "$n" "$sig" "$land" "$up" "$ids" >>"$f" || return 20
  [ "$verb" = send ] || echo "noted $up 0"
}

# may -> 0 when we have the right to signal all of $pids
may() {
  for p in $pids; do
    kill -0 "$p" 2>/dev/null || { echo "$p"; [ -e "/proc/$p" ] || return 10; return 14; }
  done
}

# send, words as for note. All of them or none: every identity, membership and mask is checked,
# then the ledger line is written, then one kill. No line written, no signal sent.
send() {
  note "$@" || return
  strikes
}

strikes() {
  kill -s "$sig" $pids; k=$?
  [ "$cont" = cont ] && kill -s CONT $pids
  echo "sent $up $k"
}

# strike LATEST SIGNAL CONT {PID START IGN CGT}... : the kill of a noted send, in the container, by
# its own numbers; LATEST by its own clock (see clock). The line stands already.
strike() {
  latest=$1; sig=$2; cont=$3; shift 3
  check - "$@" && may || return
  uptime || return 5
  [ "${up%.*}" -le "$latest" ] || return 13
  strikes
}

# clock : the uptime as this shell's /proc says it; lxcfs may say the container's own
clock() { uptime && echo "uptime:$up"; }

unsent() { # target run n : the kill of this line was refused, in so many words
  runfile "$1" "$2" && printf 'unsent %s\n' "$3" >>"$f" || return 20
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
  wedged && return 33
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

# wedged : the PID of an nvidia-smi that has been in D for some 10 s: one more would join it. A
# healthy one is in D for moments too.
wedged() {
  uptime || return 1
  for f in $(grep -lsE '^[0-9]+ \(nvidia-smi\) D ' /proc/[0-9]*/stat); do
    s=; { read -r s <"$f"; } 2>/dev/null
    set -- ${s##*)}
    [ "${1-}" = D ] && [ $((${up%.*} - ${20:-0} / 100)) -ge 10 ] || continue
    f=${f%/stat}; echo "${f#/proc/}"; return 0
  done
  return 1
}

# openers : who has a GPU open, as NUL records: link path, then link text, or, of a node that has
# another name, major:minor (hex). A container may have nodes of its own. 34: without root only
# one's own would be seen.
openers() {
  [ "$(id -u)" = 0 ] || return 34
  find /proc/[0-9]*/fd -maxdepth 1 -type l -lname '/dev/nvidia[0-9]*' -printf '%p\0%l\0' 2>/dev/null
  # what lies below another directory may be on a file system that hangs
  find /proc/[0-9]*/fd -maxdepth 1 -type l -lname '/dev/*' ! -lname '/dev/nvidia[0-9]*' \
    ! -lname /dev/null ! -lname /dev/zero ! -lname '/dev/*random' ! -lname '/dev/pt*' ! -lname '/dev/tty*' \
    ! -lname /dev/console ! -lname '/dev/shm/*' ! -lname /dev/fuse ! -lname /dev/kmsg -xtype c \
    -exec stat -L --printf '%n\0%t:%T\0' {} + 2>/dev/null
  return 0
}

# guests DIR : of the cluster's files its members and where each guest is, of every container's file
# the lines that are shown (others hold secrets); then the containers that have processes here
guests() {
  path "$1"
  [ -r "$text/.members" ] && [ -r "$text/.vmlist" ] || { [ -d "$text" ] || return 40; return 41; }
  echo members; cat "$text/.members"; printf '\n\0places\n'; cat "$text/.vmlist"
  printf '\n\0files\n'
  grep -saHE '^((hostname|tags|lock|template): |\[)' "$text"/nodes/*/lxc/*.conf
  printf '\0running\n'; grep -sahoE '/lxc/[1-9][0-9]*(/|$)' /proc/[0-9]*/cgroup | sort -u
}

# wchan PID... : where each sleeps in the kernel, one line each
wchan() {
  for p; do
    number "$p" || return 2
    w=; { read -r w <"/proc/$p/wchan"; } 2>/dev/null
    [ -z "$w" ] || echo "$p $w"
  done
}

# stacks PID MS : py-spy's dump of one process, without stopping it; it is ended when its time is over
stacks() {
  number "$1" || return 2
  command -v py-spy >/dev/null 2>&1 || return 30
  t=$(mktemp) || return 20
  py-spy dump --nonblocking -p "$1" >"$t" 2>&1 </dev/null 3<&- &
  spy=$!; left=${2:-8000}
  while kill -0 "$spy" 2>/dev/null; do
    # a child that has ended stays a zombie until it is waited for
    s=; { read -r s <"/proc/$spy/stat"; } 2>/dev/null; case ${s##*)} in ' Z'*) break ;; esac
    [ "$left" -gt 0 ] || { kill -s KILL "$spy"; rm -f "$t"; return 31; }
    nap 0.05 || { kill -s KILL "$spy"; rm -f "$t"; return 8; }
    left=$((left - 50))
  done
  wait "$spy"; s=$?; cat "$t"; rm -f "$t"
  return $s
}
# bounded MS COMMAND... : its first 256 KiB of output; 32 when it is not done by then (a hung file
# system, a bus that does not answer): it is left behind, and ends by itself or not
bounded() {
  t=$(mktemp -d) || return 20
  left=$1; step=5; shift
  ( "$@" 2>/dev/null </dev/null | head -c 262144 >"$t/o"; echo >"$t/ready"
    [ ! -f "$t/late" ] || rm -rf "$t" ) >/dev/null 2>&1 3<&- &
  until [ -f "$t/ready" ]; do
    [ "$left" -gt 0 ] || { echo >"$t/late"; return 32; }
    # quick at first: a file is read in a moment
    case $step in 100) nap 0.1 ;; 5) nap 0.005 ;; *) nap "0.0$step" ;; esac || return 8
    left=$((left - step))
    case $step in 5) step=10 ;; 10) step=20 ;; *) step=100 ;; esac
  done
  cat "$t/o"; rm -rf "$t"
}
# user NAME|UID : its line of passwd(5), then all its groups. 40: there is none; 32: a directory
# service does not answer
person() {
  if command -v getent >/dev/null 2>&1; then l=$(getent passwd "$1")
  else
    while IFS= read -r l; do case $l in "$1":*|*:*:"$1":*:*:*:*) break ;; esac; l=; done </etc/passwd
  fi
  [ -z "$l" ] || { printf '%s\n' "$l"; id -G "${l%%:*}"; }
}
user() {
  decode "$1"
  case $text in ''|-*|*[!A-Za-z0-9_.@+-]*) return 2 ;; esac
  said=$(bounded 5000 person "$text") || return
  [ -n "$said" ] || return 40
  printf '%s\n' "$said"
}

# source PATTERN... : NUL, path, newline and head of each plain file they name; a FIFO would hang
heads() {
  for f; do [ -f "$f" ] && [ -r "$f" ] && { printf '\0%s\n' "$f"; head -c 40960 -- "$f"; }; done
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

# reach WORD -> $text, the path as it is asked for, and $at, where it is: the same, but in `through`
reach() { path "$1"; at=$text; [ -z "${rooted-}" ] || descend; }

# descend -> $at, which is $text below the root of process $rooted: the working directory, or a file
# in it; $inner is that directory's own path there. Links are taken by hand: they mean that root,
# and the kernel would follow an absolute one into ours. After each step $up has to be that root
# again. 49: it could not be followed, which is not the same as 40, not there.
descend() {
  left=$text; inner=; up=.; links=0; at=.
  cd -P "/proc/$rooted/root" 2>/dev/null || return 49
  while [ -n "$left" ]; do
    part=${left%%/*}; left=${left#"$part"}; left=${left#/}
    case $part in
      ''|.) continue ;;
      ..) [ "$up" = . ] || { cd -P .. 2>/dev/null || return 49; inner=${inner%/*}; up=${up%/..}; } ;;
      *) onward || return; [ "$at" = . ] || return 0 ;;
    esac
    [ "$up" -ef "/proc/$rooted/root" ] || return 49
  done
}
onward() { # one step of it: $part
  # what /proc links to are other processes' roots, not paths
  [ "$up$part" != .proc ] || return 49
  if [ -L "./$part" ]; then
    links=$((links + 1)); [ $links -le 40 ] || return 49
    [ -z "${dated-}" ] || { printf 'l\0%s\0' "$inner/$part"; stamps -- "./$part"; }
    to=$(readlink -n "./$part" && echo .) || return 49
    left=${to%.}/$left
    case $to in /*) cd -P "/proc/$rooted/root" 2>/dev/null || return 49; inner=; up=. ;; esac
  elif [ -d "./$part" ]; then
    cd -P "./$part" 2>/dev/null || return 49
    inner=$inner/$part; up=$up/..
  elif [ -e "./$part" ]; then
    [ -z "$left" ] || return 40
    at=./$part
  else
    # a mount that is closed to us is not seen, but its name is there
    [ -r . ] || return 49
    for f in ./* ./.[!.]* ./..?*; do [ "$f" != "./$part" ] || return 49; done
    return 40
  fi
}

# through PID START SCOPE VERB WORD... : files of a container that cannot or need not be
# entered, from the host, below the root of its first process; nothing of the container is run.
# 48: it is not, or is no more, that process, and what was printed may be another root's.
through() {
  number "$1" && case $4 in list|log|ends|pidfile|code|body|sums) ;; *) false ;; esac || return 2
  of=$1; born=$2; scope=$3; asked=$4; shift 4
  theirs || return 48
  ( rooted=$of; "$asked" "$@" ); c=$?
  theirs || return 48
  return $c
}
theirs() { same "$of" "$born" && [ -z "$dead" ] && belongs "$of" "$scope"; }

# literal TEXT -> $said, which find's -printf prints as it is
literal() {
  said=; rest=$1
  while :; do
    case $rest in *[%\\]*) ;; *) said=$said$rest; return ;; esac
    c=${rest%%[%\\]*}; rest=${rest#"$c"}
    case $rest in %*) said=$said$c%% ;; *) said=$said$c\\\\ ;; esac
    rest=${rest#?}
  done
}

list() { # dir [MOST] : all of it, or the newest MOST as records of their own, behind the directory's
  reach "$1"; c=$?; date +%s.%N
  [ $c = 0 ] || return $c
  [ -d "$at" ] || { [ -f "$at" ] && echo file; [ -e "$at" ] && return 41; return 40; }
  if [ -n "${rooted-}" ]; then printf '%s\n\0' "${inner:-/}"
  else ( cd -P -- "$at" && pwd -P && printf '\0' ) || return 41; fi
  literal "$text"
  [ -z "${2-}" ] || { newest "$2"; return; }
  find "$at/" -maxdepth 5 \( -type f -o -type d \) -printf "%y\0%i\0%s\0%T@\0$said/%P\0"
}
newest() { # find's own status counts, not that of the end of the pipe
  find "$at/" -maxdepth 0 -printf "%T@ %y %i %s $said/\0" || return 9
  { c=$( { { find "$at/" -mindepth 1 -maxdepth 5 \( -type f -o -type d \) -printf "%T@ %y %i %s $said/%P\0"
      echo $? >&5; } | LC_ALL=C sort -zrn | head -zn "$1" >&6 || echo 9 >&5; } 5>&1 ); } 6>&1
  [ "$c" = 0 ] || return 9
}
ends() { # file HEAD_BYTES
  reach "$1" || return
  head -c "${2:-64}" -- "$at" && tail -c 1024 -- "$at"
}
log() { # file : now, mtime, size, then the tail
  reach "$1" || return
  [ -f "$at" ] || return 40
  date +%s.%N; find -H "$at" -printf '%T@ %s\n'; tail -c 8192 -- "$at"
}
# stamps -- FILE... : of each its change, its change of status, its birth, all since the epoch; its name
stamps() { stat --printf '%.9Y %.9Z %.9W\0%n\0' "$@" 2>/dev/null; }

# code DIR... - PATH... : a job's code, as NUL records. `n` /proc/self/stat of a process that began
# just now, and the time (lxcfs may fake an uptime, never this). Of each DIR, which may be one of
# ours: `s` its state.json, `b` when its client was heard. Of each PATH: `q`, then `l` a link on the
# way to it. Of the first that is a file: `p`, its real name, its times; `d` its directory, what it
# could import from there, with its times; last `i`, what these import, as lines.
code() {
  [ -n "${rooted-}" ] || { ( rooted=self; code "$@" ); return; }
  printf 'n\0%s\0%s\0' "$(cat /proc/self/stat)" "$(date +%s.%N)"
  while [ $# -gt 0 ] && [ "$1" != - ]; do
    base=$1; shift
    reach "$base/state.json" && [ -f "$at" ] || continue
    base=${text%/state.json}
    printf 's\0%s\0' "$base"; head -c 65536 -- "$at"; printf '\0'
    [ ! -f ./beat ] || { printf 'b\0%s\0' "$base"; stamps -- ./beat; }
  done
  [ $# -eq 0 ] || shift
  dated=yes
  for p; do
    printf 'q\0'; reach "$p"; case $? in 0) ;; 40) continue ;; *) return ;; esac
    [ -f "$at" ] || continue
    dated=
    printf 'p\0%s\0%s\0' "$text" "$inner/${at#./}"; stamps -- "$at"
    modules "$at"
    return
  done
}
modules() { # file in the working directory, which is $inner there
  printf 'd\0%s\0' "$inner"
  set -- "$1" ./*.py
  # a directory is looked into only where it is a package: others may hold a million files
  for f in ./*/__init__.py; do
    [ -f "$f" ] && [ ! -L "${f%/*}" ] && set -- "$@" "${f%/*}"/*.py
  done
  n=$#
  for f; do
    # a FIFO would hang, a link lead elsewhere
    [ -f "$f" ] && [ ! -L "$f" ] && set -- "$@" "$f"
  done
  shift $n
  [ $# -gt 0 ] || return 0
  stamps -- "$@"; printf 'i\0'
  grep -sHE '^[[:space:]]*(import|from)[[:space:]]' -- "$@" | head -c 131072
  return 0
}
# body FILE MOST : so many bytes of it; sums FILE... : SHA-256 of each, or - where it is no plain file
body() { reach "$1" || return; [ -f "$at" ] || return 40; head -c "$2" -- "$at"; }
sums() {
  for p; do
    reach "$p"; c=$?; [ $c = 0 ] || [ $c = 40 ] || return $c
    if [ $c = 0 ] && [ -f "$at" ] && [ -r "$at" ]; then sha256sum <"$at" || return 9; else echo -; fi
  done
}
# in the C locale procps turns what is not ASCII into question marks before it matches
pgrep_() { decode "$1"; LC_ALL=C.UTF-8 pgrep -f -- "$text"; }
# panes SESSION : the PID of the first process in each pane of it, by exact name. A dead pane (see
# remain-on-exit) keeps its PID, which may be a stranger's by now.
panes() { decode "$1"; tmux list-panes -s -t "=$text" -F '#{?pane_dead,,#{pane_pid}}'; }

# before LATEST ASK WORD... : touch, keys or run, unless it comes late, as strike does (see clock): a
# shell that was stalled must not type anything when its client has long decided otherwise.
before() {
  uptime || return 5
  [ "${up%.*}" -le "$1" ] || return 13
  verb=$2; shift 2
  case $verb in touch) touch_ "$@" ;; keys|run) "$verb" "$@" ;; *) return 2 ;; esac
}

# touch FILE : a stop file, in the container
touch_() { path "$1"; touch -- "$text" || return 44; }
# touchable FILE : whether that would do, as far as one can see without doing it
touchable() {
  path "$1"; set -- "${text%/*}/"
  if [ -e "$text" ]; then [ -w "$text" ]; else [ -d "$1" ] && [ -w "$1" ]; fi || return 44
}

# runnable WORD : whether a command of that name is there; 126: a file that cannot be run, 127: none
runnable() {
  decode "$1"
  case $text in
    */*) [ -e "$text" ] || return 127; [ -f "$text" ] && [ -x "$text" ] || return 126 ;;
    -*) return 127 ;;
    *) command -v "$text" >/dev/null 2>&1 || return 127 ;;
  esac
}

# keys SESSION PID,PID... KEY... : types into the panes whose first process is one of these
keys() {
  command -v tmux >/dev/null 2>&1 || return 127
  decode "$1"; session=$text; wanted=,$2,; shift 2
  typed=
  for pane in $(tmux list-panes -s -t "=$session" -F '#{pane_id}:#{?pane_dead,,#{pane_pid}}'); do
    case $wanted in *",${pane#*:},"*) ;; *) continue ;; esac
    id=${pane%%:*}
    # in copy mode keys go to the pager of tmux; -X fails where the pane is in no mode
    tmux send-keys -t "$id" -X cancel 2>/dev/null
    for key; do decode "$key"; tmux send-keys -t "$id" -- "$text" || return 45; done
    typed=yes
  done
  [ -n "$typed" ] || return 46
}

# run MS TEXT : starts shell text in the job's place and answers at once with a directory; after
# MS it is ended with all below it. It outlives this shell: it may be what saves the job.
run() {
  decode "$2"; left=$1
  case $left in ''|*[!0-9]*) return 2 ;; esac
  d=$(mktemp -d "${TMPDIR:-/tmp}/fleetstop-run.XXXXXX") || return 20
  (
    ( unset LC_ALL; trap - INT TERM; sh -c "$text"; echo $? >"$d/status" ) >"$d/out" 2>&1 </dev/null 3<&- &
    s=; { IFS= read -r s <"/proc/$!/stat"; } 2>/dev/null
    set -f; set -- $! ${s##*)}; set +f
    while [ -d "$d" ] && [ ! -f "$d/status" ]; do
      [ "$left" -gt 0 ] || { endtree "$1" "${21}"; echo late >"$d/status"; break; }
      same "$1" "${21}" && [ -z "$dead" ] || [ -f "$d/status" ] || { echo lost >"$d/status"; break; }
      nap 0.1 || break
      left=$((left - 100))
    done
  ) >/dev/null 2>&1 3<&- &
  echo "$d"
}

# ran DIR : its status (`late`: it was ended, `lost`: killed by another), a newline, the end of its output; 47: it still runs
ran() {
  path "$1"
  case ${text##*/} in fleetstop-run.*) ;; *) return 2 ;; esac
  [ -d "$text" ] || return 40
  [ -s "$text/status" ] || return 47
  cat "$text/status"; tail -c 2048 "$text/out"; rm -rf "$text"
}
pidfile() { reach "$1" || return; [ -f "$at" ] || return 40; head -c 64 -- "$at"; }

# files of a deploy

# py INTERPRETER SCRIPT INPUT : the job's own Python runs the script, INPUT on its stdin. Where it
# fails the end of its stderr follows what it wrote.
py() {
  decode "$1"; set -- "$text" "$2" "$3"
  decode "$2"; set -- "$1" "$text" "$3"
  decode "$3"
  { said=$( { printf %s "$text" | "$1" -I -c "$2" 2>&1 >&4 4>&- 3<&-; echo "status $?"; } | tail -c 2048 ); } 4>&1
  c=${said##*status }
  case $c in 0) return ;; ''|*[!0-9]*) return 9 ;; esac
  printf '\n%s\n' "${said%status *}"
  return "$c"
}

# within DIR -> $text is a directory of ours and no link leads out of it: DEST/.fleetstop/JOB
within() {
  path "$1"
  case $text in */.fleetstop/*/*|*/.fleetstop/|*/.|*/..) return 2 ;; */.fleetstop/*) ;; *) return 2 ;; esac
  [ ! -L "$text" ] && [ ! -L "${text%/*}" ] || return 21
}
aword() { case $1 in *[!0-9A-Za-z_.-]*|.*|-*|'') return 1 ;; esac; }

# put FILE MODE TEXT... : by rename, so that it is never half there; never open wider than MODE. The
# first that cannot be put there is named, and those behind it are not put.
put() {
  [ $# -gt 2 ] || { aput "$@"; return; }
  while [ $# -gt 2 ]; do aput "$1" "$2" "$3" || { c=$?; printf %s "$f"; return $c; }; shift 3; done
  [ $# = 0 ] || return 2
}
aput() { # 20: it cannot be written, 41: something else is there
  path "$1"; f=$text; decode "${3-}"
  case $2 in [0-7][0-7][0-7]|0[0-7][0-7][0-7]) ;; *) return 2 ;; esac
  [ ! -d "$f" ] || return 41
  ( t=${f%/*}/.${f##*/}.fleetstop-$$; umask 077; rm -f -- "$t"; set -C
    { printf %s "$text" >"$t" && chmod "$2" "$t" && mv -f -- "$t" "$f"; } 2>/dev/null ||
      { rm -f -- "$t"; exit 20; } ) || return 20
}
# order BASE RUN WORD [TEXT] : what the activator of this run reads next; beat BASE : its client lives
order() {
  within "$1" || return
  aword "$2" && aword "$3" || return 2
  b=$text; put "$1/order" 644 "$2 $3${4:+ $4}\0012" && touch -- "$b/beat" || return 20
}
beat() { within "$1" || return; [ -d "$text" ] && touch -- "$text/beat" || return 20; }

# tools DIR : for scripts that root will run: made, and nobody else's
tools() {
  within "$1" || return
  ( umask 077; mkdir -p -- "$text" ) 2>/dev/null || return 20
  [ -O "${text%/*}" ] && [ -O "$text" ] || return 21
}
# stage BASE RUN DIR... : the directories that files are sent into
stage() {
  within "$1" || return
  aword "$2" || return 2
  b=$text; s=$b/stage-$2; shift 2
  [ -d "${b%/*/*}/" ] || return 40
  [ ! -e "$s" ] && [ ! -L "$s" ] || return 41
  (
    umask 022; mkdir -p -- "$s/files" || exit 20
    for d; do
      decode "$d"; case /$text/ in */../*) exit 2 ;; esac
      mkdir -p -- "$s/files/$text" || exit 20
    done
  ) 2>/dev/null
}
# unstage BASE RUN... : what stage made, with all that came into it; 20: some of it is still there
unstage() {
  within "$1" || return
  b=$text; shift
  for r; do aword "$r" || return 2; done
  for r; do rm -rf -- "$b/stage-$r" 2>/dev/null; done
  rmdir -- "$b" "${b%/*}" 2>/dev/null
  for r; do [ ! -e "$b/stage-$r" ] || return 20; done
}

# doctor's questions; none of them changes anything

# have TOOL... : the time, and which of these programs are there. A find or stat that cannot print
# what we ask for (busybox) is none.
have() {
  echo "now $(date +%s.%N)"
  for t; do
    case $t in
      -*) false ;;
      find) find / -maxdepth 0 -printf '' ;;
      stat) stat --printf '' / ;;
      *) command -v "$t" ;;
    esac >/dev/null 2>&1 && echo "tool $t"
  done
  return 0
}
# health PCT : that pct can be run, its package's version, how many GPUs the kernel shows, and by
# what the kernel's log can be read
health() {
  decode "$1"
  case $text in -*) ;; *) command -v "$text" >/dev/null 2>&1 && echo pct ;; esac
  v=$(dpkg-query -W -f '${Version}' pve-container 2>/dev/null) && [ -n "$v" ] && echo "version $v"
  set -- /dev/nvidia[0-9]*; [ -e "$1" ] || shift; echo "devices $#"
  # a journal on a dead disk hangs; what could not even be asked is not closed to us
  k=
  v=$(bounded 3000 journalctl -k -q -n 1 --no-pager) || k='?'
  if [ -n "$v" ]; then k=journalctl
  elif v=$(bounded 3000 dmesg) && [ -n "$v" ]; then k=dmesg; fi
  [ -z "$k" ] || echo "kernel_log $k"
  return 0
}
# paths WHO PATH... : NUL records: WHO's uid; then of each path what it is (file, dir, other, none),
# whether WHO may write it, or where it is none the nearest directory above it (yes, no, ?), that
# directory, its owner. WHO: pid:N, as that process; a name; - us. 40: there is no such user
paths() {
  u=; g=; gs=
  case $1 in
    -) u=$(id -u) ;;
    pid:*)
      number "${1#pid:}" || return 2
      { while read -r k a b c; do
        case $k in Uid:) u=$b ;; Gid:) g=$b ;; Groups:) gs="$a $b $c" ;; esac
      done <"/proc/${1#pid:}/status"; } 2>/dev/null ;;
    *)
      decode "$1"
      case $text in ''|-*|*[!A-Za-z0-9_.@+-]*) return 2 ;; esac
      u=$(id -u "$text" 2>/dev/null); g=$(id -g "$text" 2>/dev/null); gs=$(id -G "$text" 2>/dev/null) ;;
  esac
  [ -n "$u" ] || return 40
  me=; [ "$u" != "$(id -u)" ] || me=yes
  csv=; for i in $gs; do csv=${csv:+$csv,}$i; done
  shift
  printf '%s\0' "$u"
  for p; do
    path "$p"; near=$text; what=none
    if [ -f "$text" ]; then what=file; elif [ -d "$text" ]; then what=dir
    elif [ -e "$text" ] || [ -L "$text" ]; then what=other
    else until [ -e "$near" ]; do near=${near%/*}; near=${near:-/}; done; fi
    if [ $what = none ] && [ ! -d "$near" ]; then may=no; else mayhe "$near"; fi
    printf '%s\0%s\0%s\0%s\0' "$what" "$may" "$near" "$(stat -Lc %u -- "$near" 2>/dev/null)"
  done
}
mayhe() { # file -> $may: asked of the kernel as that user, which knows of ACLs and read-only mounts
  set -- "$1" '[ -w "$0" ] && { [ ! -d "$0" ] || [ -x "$0" ]; } && echo yes || echo no'
  if [ -n "$me" ]; then may=$(sh -c "$2" "$1")
  elif [ -n "$csv" ]; then
    may=$(setpriv --reuid="$u" --regid="$g" --groups="$csv" sh -c "$2" "$1" 2>/dev/null)
  else may=$(setpriv --reuid="$u" --regid="$g" --clear-groups sh -c "$2" "$1" 2>/dev/null); fi
  may=${may:-?}
}

echo; echo ready
while IFS= read -r line <&3; do
  set -f; set -- $line; set +f
  [ $# -ge 2 ] || continue
  nonce=$1; verb=$2; shift 2
  case $verb in
    hello|look|argv|detail|origin|user|watch|claim|claimable|ledger|stamp|forget|send|note|strike|unsent|clock|stuck|endtree|frozen|gpus|guests|openers|wchan|stacks|list|ends|log|pidfile|code|body|sums|through|panes|touchable|runnable|before|ran|unit|py|put|order|beat|tools|stage|unstage|have|health|paths)
      # `command`: what would end the shell (a fork that fails, a shift too far) ends the verb
      command eval '"$verb" "$@"' ;;
    done|pgrep|source) command eval '"${verb}_" "$@"' ;;
    *) false ;;
  esac
  status=$?
  printf '\n%s %s\n' "$nonce" "$status"
done
