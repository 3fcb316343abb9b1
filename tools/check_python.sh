#!/bin/sh
# Says in one line what a Python lacks to make the virtual environment: check_python.sh PYTHON
python=$1

if ! command -v "$python" >/dev/null 2>&1; then
    echo "make: there is no $python here; install Python 3.11 or newer, or name one: make PYTHON=/path/to/python" >&2
    exit 1
fi

seen=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || {
    echo "make: $python does not run; name another Python >= 3.11: make PYTHON=/path/to/python" >&2
    exit 1
}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "make: $python is Python $seen; 3.11 or newer is needed: make PYTHON=python3.11" >&2
    exit 1
fi

if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    echo "make: $python ($seen) has no venv module; on Debian and Ubuntu: apt install python$seen-venv" >&2
    exit 1
fi
