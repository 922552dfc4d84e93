# Puts files into a container by `pct push`, for one that has no tar: push.sh DIR RUN PCT VMID, with
# a tar on stdin that holds the files, numbered from 0, and `list`: a line for the mode and a line for
# the destination of each. Without a RUN it only removes what an earlier one has left.
# pct says 0 whatever became of a copy, and a full disk truncates it without a word (pve-container
# pct.pm, push): what it says is handed on, and whether the file is whole is proved inside.
umask 077
d=$1-$4.$(id -u); r=$2; pct=$3; vmid=$4
[ -d "$d" ] || [ -n "$r" ] || exit 0
mkdir -m 700 -- "$d" 2>/dev/null
# /var/tmp is everybody's: no other person's directory is used
[ -d "$d" ] && [ ! -L "$d" ] && [ -O "$d" ] || { echo "$d is not a directory of ours" >&2; exit 20; }
# it goes on to its end when nobody listens any more, so that nothing is left
trap '' HUP PIPE
# whoever holds the container's lock is alone: what lies here was left by one that was killed
rm -rf -- "$d"/*
[ -n "$r" ] || { rmdir -- "$d"; exit 0; }
sudo=; [ "$(id -u)" = 0 ] || sudo="sudo -n"

put() { # NUMBER MODE DEST : the container's lock may be taken; pct waits 10 s for it, three times
  for try in 1 2 3; do
    # pct takes its words by the locale (pve-common JSONSchema.pm, decode)
    said=$(LC_ALL=C.UTF-8 $sudo "$pct" push "$vmid" "$d/$r/$1" "$3" --perms "$2" 2>&1 </dev/null); k=$?
    case $said in *"can't lock file"*) ;; *) break ;; esac
  done
  [ -z "$said" ] || printf '%s: %s\n' "$3" "$said" >&2
  return $k
}
all() {
  mkdir -- "$d/$r" && tar -x -o -f - -C "$d/$r" || return 21
  n=0
  while IFS= read -r mode && IFS= read -r dest; do
    put "$n" "$mode" "$dest" || return 22
    n=$((n + 1)); echo "$n" 2>/dev/null
  done <"$d/$r/list"
}
all; c=$?
rm -rf -- "$d/$r"; rmdir -- "$d" 2>/dev/null
exit $c
