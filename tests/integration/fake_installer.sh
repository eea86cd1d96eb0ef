#!/bin/sh
# Stands in for python, pip and uv while an engine's environment is made. PIP_FAKE, a list of words, says what goes wrong.
here=$(dirname "$0")
says() { case " $PIP_FAKE " in *" $1 "*) return 0 ;; esac; return 1; }
echo "$(basename "$0") $*" >> "$PIP_FAKE_CALLS"
env | grep -q SECRET && { echo "a secret is in the environment"; exit 1; }
no_torch() { says no-torch && case "$*" in *whl/cpu*) return 1 ;; *) return 0 ;; esac; return 1; }

case "$*" in
  "-m venv "*)
    mkdir -p "$3/bin" "$3/lib/python3/site-packages"
    cp "$0" "$3/bin/python" ;;
  "-m pip install --quiet uv")
    says no-uv && exit 1
    cp "$0" "$here/uv" ;;
  "-m pip config get global.find-links") echo /some/wheels ;;
  "-m pip config get "*) echo "no such key" >&2; exit 1 ;;
  "pip install "* | "-m pip install "*)
    no_torch "$@" && { echo "Because there is no version of torch{platform_machine == 'x86_64'}==2.13.0+cpu"; exit 1; }
    says no-network && { echo "no route to host"; exit 1; }
    says broken-uv && [ "$1" = pip ] && { echo "error"; exit 1; }
    echo "Resolved 148 packages" ;;
  "-W ignore -c "*) says broken-engine && { echo "ImportError: libnuma"; exit 1; } ;;
esac
exit 0
