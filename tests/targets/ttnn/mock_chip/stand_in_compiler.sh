#!/bin/sh
# Takes the place of the device's compiler: whatever kernel is asked for, an empty one is linked.
#
# A mock chip runs no kernel, and the library's wheel brings no compiler along. The words in angle brackets
# are filled in when the interpreter is built. A program has thousands of kernels, and a shell starts fastest.
set -eu

if [ "$1" = --version ]; then
  echo "riscv-tt-elf-g++ (none) 15.1.0"
  exit
fi

target= script= source= depends=
count=$#
while [ "$count" -gt 0 ]; do # behind the options that are read, those for the linker gather
  option=$1
  shift
  count=$((count - 1))
  case $option in
  -o)
    target=$1
    shift
    count=$((count - 1))
    ;;
  -T*) script=${option#-T} ;;
  -Wl,--just-symbols*) set -- "$@" "${option#-Wl,}" ;;
  -M*) depends=yes ;;
  *.cc | *.cpp | *.S) source=${source:-$option} ;;
  esac
done

folder=${target%/*}
[ -d "$folder" ] || mkdir -p "$folder"
case $target in
*/kernels/*.elf) # linked with the script and symbols that the library gives
  riscv64-unknown-elf-ld -melf32lriscv --emit-relocs -z max-page-size=16 -z common-page-size=16 "$@" \
    -T "$script" "<kernel>" -o "$target"
  ;;
*.elf)
  core=${target##*/}
  core=${core%%.*}
  for built in "<firmware>"/*/"$core/$core.elf" "<firmware>"/*/brisc/brisc.elf; do
    [ ! -e "$built" ] || break
  done
  cp "$built" "$target"
  ;;
*) : >"$target" ;;
esac
[ -z "$depends" ] || echo "$target: ${source:-$0}" >"${target%.*}.d"
