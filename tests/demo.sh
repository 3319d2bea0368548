#!/bin/sh
# The second half of `make demo`: the commands of the toolkit over what a Java bookie left on disk.
set -eu
directory=${1:?usage: demo.sh DIRECTORY}
if [ ! -d "$directory" ]; then
  echo "demo: $directory: no such directory" >&2
  exit 1
fi

printf '\n# What a Java bookie of 4.17.3 left behind: %s\n' "$directory"

show() {
  printf '\n$ %s\n' "$*"
  "$@"
}

# Many rows: the first ten under their header.
begin() {
  printf '\n$ %s | head -n 12\n' "$*"
  "$@" | head -n 12
}

# With the metadata of its ledgers every digest can be checked, MAC and DUMMY too.
set --
if [ -f "$directory/zk.json" ]; then
  set -- --metadata "$directory/zk.json"
fi

show bkctl inspect "$directory" -o table
show bkctl entrylog show 0 "$directory" -o table
begin bkctl entrylog scan "$directory" "$@" -o table
show bkctl entrylog verify "$directory" "$@" -o table
show bkctl journal verify "$directory" "$@" -o table
show bkctl index ledgers "$directory" -o table
show bkctl cookie get "$directory" -o table
